// Why letters are there, and what is usually done with them.

const causes = {
  overflow: ["the bucket had no room, or the call would have come too late", "Redrive at a rate that the bucket takes; where a deadline has passed, without it."],
  expired: ["the deadline passed before the call", "Redrive without the deadline, or purge."],
  invalid: ["the job does not match the API's rules", "Fix the producer and submit the job again."],
  rejected: ["the API said no for good", "Look at the answer of one; mend what it says, then redrive."],
  exhausted: ["every attempt failed", "Redrive when the API is well again."],
  unknown: ["it is unknown whether the API processed the call", "Look it up at the API, or ask it: weir dead reconcile. A redrive may be billed twice."],
  over_budget: ["the budget was spent", "Redrive in the budget's next period."],
  cancelled: ["an operator cancelled the job", "Left alone by a redrive, unless the reason cancelled is chosen."],
};

// overflows are the refusals that letters of the reason overflow come from, by how the letter's detail begins.
const overflows = {
  "bucket full:": ["the bucket was full", "Redrive at a rate that the bucket takes."],
  "too late:": ["the deadline would have passed before the call", "Redrive without the deadline, or purge."],
  "would wait too long:": ["the call would have come later than max_wait allows", "Redrive when fewer jobs wait, or raise max_wait."],
  "too many jobs come in:": ["an admission limit said no", "Redrive at a rate that the admission limit takes."],
};

/** causeText says what a reason means. */
export const causeText = (reason) => causes[reason]?.[0] ?? reason;

/** remedy says what is usually done with letters of a reason. */
export const remedy = (reason) => causes[reason]?.[1] ?? "Look at one of them.";

/** explanation says of one letter why it is there, and what is usually done with it. */
export function explanation({ reason, detail }) {
  const refusal = Object.keys(overflows).find((begin) => reason === "overflow" && detail?.startsWith(begin));
  const [why, what] = overflows[refusal] ?? [causeText(reason), remedy(reason)];
  return `${why[0].toUpperCase()}${why.slice(1)}. ${what}`;
}

/** reasons are those there are. */
export const reasons = Object.keys(causes);

/** shadeOf is how a reason is coloured. */
export const shadeOf = (reason) => (reason === "unknown" ? "unknown" : reason === "cancelled" ? "calm" : "dead");
