// Where the time of a job went, as one bar: waiting for its key's rate and the jobs before it, for a limit, for a hold, and being called.
import { h } from "./dom.js";
import { brief } from "./format.js";

const holds = new Set(["held", "api_held", "paused", "slowed", "limiter", "retry"]);

// kindOf returns the colour and the words of a cause, which is one of the values of a key's waits.for.
function kindOf(cause, limit) {
  if (cause === "limit") return ["limit", `limit ${limit}`];
  if (cause === "in_flight") return ["limit", "calls in flight"];
  if (cause === "not_before") return ["asked", "the time that it asked for"];
  if (holds.has(cause)) return ["hold", cause === "paused" ? "a pause" : cause === "retry" ? "its retry" : "a hold"];
  if (cause) return ["other", cause.replaceAll("_", " ")];
  return ["rate", "its key's rate and the jobs before it"];
}

const operation = ["called", "the API's operation"];

/** spans returns what a job spent its time on, in order: {kind, what, ms}. now is the time of the newest figures. */
export function spans(j, now) {
  const all = [];
  const add = ([kind, what], ms) => {
    if (!(ms > 0)) return;
    const last = all.at(-1);
    if (last?.what === what) last.ms += ms;
    else all.push({ kind, what, ms });
  };
  const wait = (ms, cause, limit, held) => {
    const of = cause ? Math.min(ms, held) : 0;
    add(kindOf(), ms - of);
    if (of > 0) add(kindOf(cause, limit), of);
  };
  let since = null;
  for (const s of j.timeline) {
    if (s.what === "accepted") since ??= Date.parse(s.at);
    if (since !== null && s.what === "operation") {
      add(operation, Date.parse(s.ended ?? s.at) - since);
      since = Date.parse(s.ended ?? s.at);
    }
    if (s.what !== "call" || since === null) continue;
    wait(Date.parse(s.at) - since, s.held_for, s.held_limit, s.held_ms);
    since = Date.parse(s.ended ?? s.at);
    add(["called", "being called"], since - Date.parse(s.at));
  }
  if (j.state === "queued" && since !== null) {
    const w = j.queue?.waits, phase = j.queue?.state?.phase;
    if (phase === "calling") add(["called", "being called"], now - since);
    else if (phase === "polling") add(operation, now - since);
    else wait(now - since, w && !["nothing", "rate"].includes(w.for) ? w.for : "", w?.limit, now - since);
  }
  return all;
}

/** timeBar draws the spans with their lengths. Nothing is drawn of a job that took no time that is known. */
export function timeBar(j, now) {
  const all = spans(j, now), sum = all.reduce((n, s) => n + s.ms, 0);
  if (sum === 0) return null;
  const text = (s) => `${s.kind === "called" ? "" : "waiting for "}${s.what}: ${brief(s.ms)}`;
  return h("figure.spent-time", {}, h("figcaption.quiet", {}, "Where its time went: ", h("b", {}, brief(sum))),
    h("div.spans", { role: "img", "aria-label": all.map(text).join("; ") }, all.map((s, i) => h("span", { key: String(i), class: s.kind, title: text(s), css: { "--share": String(s.ms / sum) } }))),
    h("p.legend", {}, all.map((s, i) => h("span", { key: String(i), class: "of-" + s.kind }, text(s)))));
}
