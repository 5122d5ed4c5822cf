import { h } from "../dom.js";
import { keyPath, link } from "../route.js";
import { brief, count, perSecond, rate } from "../format.js";
import { moment } from "../time.js";
import { pace, slots } from "../past.js";
import { flow, legend } from "../flow.js";
import { vessel } from "../vessel.js";
import { limitLine } from "../limit.js";
import { emptyIn, pictureText } from "../buckettable.js";
import { callbackLine } from "../callback.js";
import { shade, short, stopped, waiting } from "../wait.js";
import { empty, failed, waits, command, quoted } from "../said.js";
import { pauseButton } from "../pause.js";
import { cancelButton } from "../cancel.js";

const listed = 20; // next jobs

/** bucket is the page of one key of one API. */
export const bucket = {
  path: "/bucket", title: (query) => `${query.get("key")} of ${query.get("api")}`,
  view(app, query) {
    const api = query.get("api") ?? "", key = query.get("key") ?? "";
    const title = h("h1", {}, h("a", { href: link("/buckets", { api }) }, api), " / ", key);
    const asked = app.answers.use(keyPath(api, key, "", { limit: listed }), 1000);
    const shown = app.frozen ? asked.frozen ?? asked.value : (asked.frozen = asked.value);
    app.history(api, key);
    const terminal = command(`weir show ${quoted(api)} ${quoted(key)}`);
    if (!shown) {
      if (asked.error?.status === 404) return [title, resting(app, api, key, asked.error), related(api, key), terminal];
      return [title, asked.error ? failed(asked.error) : waits("the bucket")];
    }
    const line = app.past.of(api, key), p = pace(line);
    const paused = shown.waits.for === "paused" ? shown.waits : null;
    const apiPaused = app.snapshot?.status.apis.find((a) => a.api === api)?.pause;
    return [
      h("div.bar", {}, title, app.operator() && !apiPaused && h("div.actions", {}, pauseButton(app, api, key, paused))),
      asked.error && failed(asked.error),
      h("div.split.first", {},
        h("section.card", { "aria-label": "The bucket" }, h("div.still-life", {},
          h("div.scene", {}, h("p.flow-in", {}, h("b", {}, p ? perSecond(p.came) : "–"), " in"),
            vessel({ level: shown.depth, capacity: shown.capacity, came: p?.came, left: p?.left, stopped: stopped(shown.waits), size: "large", label: pictureText(shown, p) }),
            h("p.flow-out", {}, h("b", {}, p ? perSecond(p.left) : "–"), " out")),
          h("div.beside", {},
            h("p.level", {}, h("b", { "data-field": "depth" }, count(shown.depth)), h("span.quiet", {}, " of " + count(shown.capacity) + " jobs")),
            h("p", {}, shown.wait_ms < 0 ? "Unknown when it will be empty" : shown.depth === 0 ? "Empty" : ["Empty in ", h("b", { "data-field": "wait" }, emptyIn(shown)), ", if no more jobs arrive"]),
            h("p", {}, h("span.chip", { class: shade(shown.waits) }, short(shown.waits))),
            h("p.whole.quiet", {}, "The next job waits for ", waiting(shown.waits))))),
        h("section.card", { "aria-label": "Its figures" }, h("dl.facts", {},
          fact("rate", [rate(shown.rate), ", a call every ", brief(shown.rate.interval_us / 1000), shown.rate.burst > 1 && `, ${shown.rate.burst} together after idling${shown.rate.counts === "token_bucket" ? " (a token bucket)" : ""}`]),
          shown.gets && fact("gets", gets(shown.gets, shown.waits, app.now())),
          fact("in flight", `${shown.in_flight} of ${shown.max_in_flight}`),
          shown.polled > 0 && fact("operations", `${count(shown.polled)} go on at the API and are polled`),
          shown.jobs && fact("priorities", ["high", "normal", "low"].filter((p) => shown.jobs[p]).map((p) => `${count(shown.jobs[p])} ${p}`).join(", ")),
          fact("wait", shown.wait_ms < 0 ? "unknown" : `${brief(shown.wait_ms)} for a job that arrives now`),
          fact("stored in", h("code", {}, shown.stream)),
          shown.callback && fact("callback", h("span.whole", { "data-field": "callback" }, callbackLine(shown.callback, app.now()))),
          fact("dispatched by", shown.instance)),
        (shown.limits ?? []).length > 0 && h("h2", { class: "spaced" }, "Limits shared by all keys"), (shown.limits ?? []).map((l) => limitLine(api, l)))),
      h("h2", {}, "The last 15 minutes"),
      h("section.card", {}, flow(slots(line, app.now()), { capacity: shown.capacity, of: key, height: 150, tall: true }), legend(line, app.now())),
      h("h2", {}, "Next jobs"),
      shown.next.length > 0 ? jobs(app, api, key, shown) : empty("No job waits", "The key is paused, and its bucket is empty."),
      related(api, key), terminal,
    ];
  },
};

const fact = (name, ...what) => [h("dt", {}, name), h("dd", {}, ...what)];

// gets says how many calls a key gets and which limit decides, or that it gets none until its wait has ended.
function gets(s, waits, now) {
  if (!s.stopped) return share(s);
  return [waits.until ? ["nothing until ", moment(waits.until, now)] : "nothing while it waits", ", then ", share(s)];
}

function share(s) {
  if (!s.limit) return perSecond(s.calls_per_s) + ": its own rate";
  if (s.limit === "in_flight") return perSecond(s.calls_per_s) + ": as many calls as its in_flight allows, given how long they take";
  return `${perSecond(s.calls_per_s)} of the ${perSecond(s.of)} that limit ${s.limit} allows: ${s.keys} ${s.keys === 1 ? "key with jobs uses it" : "keys with jobs share it"}`;
}

function jobs(app, api, key, shown) {
  const ranked = shown.jobs !== undefined; // jobs of several priorities
  return h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, `The next jobs of ${key}`),
    h("thead", {}, h("tr", {}, ["Place", "Job", "State", "Calls", "Called at", ...(ranked ? ["Priority"] : []), ""].map((name, i) => h("th", { scope: "col", class: i === 0 || i === 3 ? "n" : "" }, name || h("span.unseen", {}, "Action"))))),
    h("tbody", {}, shown.next.map((j) => h("tr", { key: String(j.seq) },
      h("td.n.fit", { "data-name": "Place" }, j.position),
      h("td.code", { "data-name": "Job" }, j.job ? h("a", { href: link("/job", { id: j.job }) }, j.job) : "–"),
      h("td", { "data-name": "State" }, h("span.chip", { class: j.phase === "calling" || j.phase === "polling" ? "good" : j.phase === "retry" ? "held" : "calm" }, j.phase.replace("_", " "))),
      h("td.n.fit", { "data-name": "Calls" }, j.calls),
      h("td.nowrap", { "data-name": "Called at" }, j.eta ? h("span", {}, moment(j.eta, app.now()), h("span.quiet", {}, ` in ${brief(Date.parse(j.eta) - app.now())}`)) : "–"),
      ranked && h("td.fit", { "data-name": "Priority" }, j.priority ?? "normal"),
      h("td.fit", {}, app.operator() && j.job && j.phase !== "calling" && j.phase !== "ending" && cancelButton(app, api, j.job)))))),
  shown.depth > shown.next.length && h("p.quiet.more", {}, `${count(shown.depth - shown.next.length)} more behind them`));
}

function resting(app, api, key, err) {
  if (!app.snapshot?.status.apis.some((a) => a.api === api)) return failed(err);
  return empty("The bucket is empty", `No job of ${key} waits. weir calls the next job at once, within the limits:`, h("code", {}, `weir submit ${quoted(api)} ${quoted(key)} --data '{"hello":"world"}'`),
    app.operator() && pauseButton(app, api, key, null));
}

const related = (api, key) => h("p.related", {}, h("a", { href: link("/letters", { api, key }) }, "Dead letters of this key"), " · ", h("a", { href: link("/events", { api, key }) }, "Events of this key"));
