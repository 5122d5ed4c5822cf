// A callback is where weir posts the ends of an API's jobs.
import { h } from "./dom.js";
import { count, things } from "./format.js";
import { moment } from "./time.js";

/** callbackText says since when the receiver of an API's callback accepts no post, or how far it is behind. */
export function callbackText(c, now) {
  if (c.failing_since) return ["receiver fails since ", moment(c.failing_since, now), c.why && `: ${c.why}`];
  if (!c.unknown && c.oldest) return ["the oldest from ", moment(c.oldest, now)];
  return c.given_up > 0 && `${count(c.given_up)} given up`;
}

/** callbackLine says in one line where the ends of an API's jobs are posted, and how far that is behind. */
export function callbackLine(c, now) {
  const more = callbackText(c, now);
  return [h("code", {}, c.receiver), ": ", waiting(c), more && [", ", more]];
}

/** waiting says how many ends are not posted yet. */
function waiting(c) {
  if (c.unknown) return "it is not known yet how many ends wait";
  return c.behind > 0 ? `${things(c.behind, "end")} not posted yet` : "no end waits";
}
