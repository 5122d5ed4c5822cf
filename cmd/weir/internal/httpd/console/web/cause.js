// The causes of dead letters, and what operators usually do with them.

const causes = {
  overflow: ["the bucket had no room, or the call would have come too late", "Redrive at a rate that the bucket can take; if a deadline has passed, drop the deadline."],
  expired: ["the deadline passed before the call", "Redrive without the deadline, or purge."],
  invalid: ["the job does not match the API's rules", "Fix the producer and submit the job again."],
  rejected: ["the API rejected the call for good", "Read the answer in one letter; fix what it names, then redrive."],
  exhausted: ["every attempt failed", "Redrive when the API works again."],
  unknown: ["it is unknown whether the API processed the call", "Check with the API, or let weir ask it: weir dead reconcile. A redrive may be billed twice."],
  over_budget: ["the budget was spent", "Redrive in the budget's next period."],
  cancelled: ["an operator cancelled the job", "A redrive skips them unless you choose the reason cancelled."],
};

// overflows are the refusals behind letters with the reason overflow, by the beginning of the letter's detail.
const overflows = {
  "bucket full:": ["the bucket was full", "Redrive at a rate that the bucket can take."],
  "too late:": ["the deadline would have passed before the call", "Redrive without the deadline, or purge."],
  "would wait too long:": ["the call would have come later than max_wait allows", "Redrive when fewer jobs wait, or raise max_wait."],
  "too many jobs come in:": ["an admission limit refused the job", "Redrive at a rate that the admission limit allows."],
};

/** causeText returns the meaning of a reason. */
export const causeText = (reason) => causes[reason]?.[0] ?? reason;

/** remedy returns the usual way to deal with letters of a reason. */
export const remedy = (reason) => causes[reason]?.[1] ?? "Open one of them.";

/** explanation returns the cause of one letter, and the usual way to deal with it. */
export function explanation({ reason, detail }) {
  const refusal = Object.keys(overflows).find((begin) => reason === "overflow" && detail?.startsWith(begin));
  const [why, what] = overflows[refusal] ?? [causeText(reason), remedy(reason)];
  return `${why[0].toUpperCase()}${why.slice(1)}. ${what}`;
}

/** reasons are all reasons of letters. */
export const reasons = Object.keys(causes);

/** shadeOf returns the colour class of a reason. */
export const shadeOf = (reason) => (reason === "unknown" ? "unknown" : reason === "cancelled" ? "calm" : "dead");
