// Why letters are there, and what is usually done with them.

const causes = {
  overflow: ["their bucket was full", "Redrive them at a rate that the bucket takes."],
  expired: ["their deadline passed before their call", "Redrive them without their deadline, or purge them."],
  invalid: ["the job was not as the api's rule asks", "Their producer must send them otherwise."],
  rejected: ["the api said no for good", "Look at the answer of one; mend what it says, then redrive."],
  exhausted: ["every attempt failed", "Redrive them when the api is well again."],
  unknown: ["nobody knows whether the api processed the call", "Look them up at the api, or ask it: weir dead reconcile. A redrive may be billed twice."],
  over_budget: ["the budget was spent", "Redrive them in the budget's next period."],
  cancelled: ["an operator ended them", "They are left alone unless they are asked for by their reason."],
};

/** causeText says what a reason means. */
export const causeText = (reason) => causes[reason]?.[0] ?? reason;

/** remedy says what is usually done with letters of a reason. */
export const remedy = (reason) => causes[reason]?.[1] ?? "Look at one of them.";

/** reasons are those there are. */
export const reasons = Object.keys(causes);

/** shadeOf is how a reason is coloured. */
export const shadeOf = (reason) => (reason === "unknown" ? "unknown" : reason === "cancelled" ? "calm" : "dead");
