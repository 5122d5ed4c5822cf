// The reason why a bucket's next job is not called now, in the words of the command line.
import { moment, said } from "./time.js";

/** waiting describes what a bucket's next job waits for. */
export function waiting(w) {
  const until = w.until ? [" until ", moment(w.until)] : "", because = w.why ? [" because ", said(w.why)] : "";
  switch (w.for) {
    case "nothing": return "nothing: every job is being called";
    case "rate": return ["rate", until];
    case "in_flight": return "in_flight: a running call must end";
    case "limit": return ["limit " + w.limit, until];
    case "held": return ["held", until, because];
    case "api_held": return ["the api is held", until, because];
    case "paused": return ["resume: ", said(w.why)];
    case "slowed": return ["slowed", until, ": the api has pushed back"];
    case "not_before": return ["the time that its jobs asked for", until];
    case "answer": return ["the answer to an equal job: ", said(w.why)];
    case "pack": return ["more jobs for its pack", until];
    case "retry": return ["retry", until, because];
    case "limiter": return w.why ? ["the limiter: ", said(w.why)] : "the limiter, which does not answer";
    case "room": return "room: as many calls run as the process may make";
    case "reading": return "the queue to be read after a start";
    case "clearing": return "finished jobs to be deleted";
    case "stopping": return "a restart: weir is stopping";
  }
  return w.for;
}

const stops = new Set(["held", "api_held", "paused", "limiter", "stopping"]);

/** stopped reports whether no call may start until something changes. */
export const stopped = (w) => stops.has(w.for);

/** short describes the same in one or two words, for a chip. */
export function short(w) {
  switch (w.for) {
    case "nothing": return "calling";
    case "in_flight": return "in flight";
    case "api_held": return "api held";
    case "limit": return "limit " + w.limit;
    case "not_before": return "not before";
  }
  return w.for;
}

/** shade returns the colour class of a wait. */
export function shade(w) {
  if (w.for === "paused") return "paused";
  if (stops.has(w.for) || w.for === "slowed" || w.for === "retry") return "held";
  if (w.for === "limit" && w.until && Date.parse(w.until) - Date.now() > 60_000) return "held"; // a quota or a budget that is used up
  return w.for === "nothing" ? "good" : "calm";
}
