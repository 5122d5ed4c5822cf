import { h, textOf } from "../dom.js";
import { link } from "../route.js";
import { brief, count, things, price, perSecond } from "../format.js";
import { moment, said } from "../time.js";
import { slots, pace } from "../past.js";
import { flow, legend } from "../flow.js";
import { limitLine, nearest } from "../limit.js";
import { empty, waits, command } from "../said.js";
import { pauseButton } from "../pause.js";
import { causeText } from "../cause.js";
import { callbackText } from "../callback.js";
import { bucketTable } from "../buckettable.js";

/** overview shows all of weir on one page. */
export const overview = {
  path: "/", title: "Overview", nav: "Overview", key: "o",
  view(app) {
    const s = app.snapshot?.status;
    if (!s) return [h("h1", {}, "Overview"), waits("the state of weir")];
    const deepest = app.snapshot.buckets.toSorted((a, b) => b.depth - a.depth).slice(0, 6);
    return [
      h("h1", {}, "Overview"),
      health(app, s),
      s.apis.length === 0 ? empty("No API is configured yet", "Describe one in weir.yaml and put it in force:", h("code", {}, "weir config apply -f weir.yaml"))
        : h("div.cards", { class: "wide" }, s.apis.map((a) => apiCard(app, s, a))),
      h("h2", { id: "deepest" }, "Deepest buckets"),
      deepest.length > 0 ? [bucketTable(app, deepest, "The six deepest buckets of all apis"), h("p", {}, h("a", { href: "/buckets" }, "All buckets"))]
        : empty("Nothing waits", "Every bucket is empty. Publish a job to see one fill:", h("code", {}, `nats request weir.jobs.${s.apis[0]?.api ?? "API"}.customer-7 '{"hello":"world"}'`)),
      h("h2", { id: "causes" }, "Dead letters"),
      letters(s),
      command("weir status"),
    ];
  },
};

function health(app, s) {
  const warnings = things(s.warnings.length, "warning"), warned = s.warnings.length > 0;
  if (!s.healthy) {
    return [h("div.told.bad", { role: "region", "aria-label": "Problems" }, h("p", {}, h("strong", {}, things(s.problems.length, "problem"))), s.problems.map(told)),
      warned && h("div.told.warn", { role: "region", "aria-label": "Warnings" }, h("p", {}, h("strong", {}, warnings)), s.warnings.map(told))];
  }
  const old = app.live !== "live", but = warned ? `, with ${warnings}` : "";
  return h("div.told", { class: old ? "" : warned ? "warn" : "good", role: "region", "aria-label": "Health" },
    h("p", {}, h("strong", {}, old ? ["Was healthy at ", moment(s.at), but, ": "] : `Healthy${but}. `),
      `${things(s.apis.length, "api")}, dispatched by ${things(s.replicas.length, "replica")}; ${things(s.apis.reduce((n, a) => n + a.jobs, 0), "job")} waiting or being called.`),
    s.warnings.map(told));
}

const told = (p) => h("p", {}, said(p.what), h("br"), h("span.quiet", {}, "What to do: ", said(p.fix)));

/** stateOf says whether weir calls an API. */
export function stateOf(a) {
  const held = a.holds?.find((x) => !x.key);
  if (a.pause) return { chip: "paused", shade: "paused", until: a.pause.until, why: pauseText(a.pause) };
  if (held) return { chip: "held", shade: held.fault ? "dead" : "held", until: held.until, why: said(held.why) };
  if (a.owned < a.partitions) return { chip: `${a.owned} of ${a.partitions} partitions`, shade: "held", why: "no replica dispatches the others" };
  return { chip: "active", shade: "good" };
}

/** pauseText names the operator that paused, the time and the reason, as far as they are known. */
const pauseText = (p) => [`paused${p.by ? " by " + p.by : ""} at `, moment(p.at), p.until && [" until ", moment(p.until)], p.why && ": " + p.why];

function apiCard(app, s, a) {
  app.history(a.api);
  const line = app.past.of(a.api), now = app.now(), p = pace(line), state = stateOf(a), near = nearest(a);
  const refused = line.some((x) => x.refused > 0);
  return h("section.card", { key: a.api, "aria-labelledby": "api-" + a.api, "data-api": a.api },
    h("div.bar", {}, h("h2", { id: "api-" + a.api }, h("a", { href: link("/buckets", { api: a.api }) }, a.api), " ", h("span.chip", { class: state.shade, title: state.why && textOf(state.why) }, state.chip)),
      app.operator() && pauseButton(app, a.api, undefined, a.pause)),
    state.why && h("p.quiet.whole", {}, state.why, state.until && a.pause === undefined && [" (until ", moment(state.until, now), ")"]),
    h("dl.figures", {},
      figure("accepted", a.accepted, p && perSecond(p.came), "accepted"),
      figure("called", a.called, p && perSecond(p.left), "called"),
      figure("throttled", a.throttled, p && p.refused > 0 && perSecond(p.refused), "throttled"),
      figure("waiting", a.jobs, `${count(a.keys)} ${a.keys === 1 ? "bucket" : "buckets"}`, "jobs"),
      figure("in flight", a.in_flight, null, "in_flight"),
      a.callback && figure("ends not posted", a.callback.behind, callbackText(a.callback, now), "callback", a.callback.unknown ? "not known yet" : count(a.callback.behind)),
      a.operations && figure("operations", a.operations.under_way, a.operations.oldest && `oldest ${brief(now - Date.parse(a.operations.oldest))}`, "operations"),
      figure("spent today", null, a.in_doubt_today && Number(a.in_doubt_today) > 0 && `${price(a.in_doubt_today)} in doubt`, "spent_today", price(a.spent_today))),
    h("p.since.quiet", {}, s.replicas.length > 1 ? "Counted since its replicas started, the first at " : "Counted since its replica started at ", moment(a.counted_since, now, { "data-field": "since" })),
    flow(slots(line, now), { of: a.api, height: 60 }), legend(line, now, refused),
    (a.paused_keys > 0 || a.held_keys > 0) && h("p", {}, a.paused_keys > 0 && h("span.chip.paused", {}, things(a.paused_keys, "key") + " paused"), " ", a.held_keys > 0 && h("span.chip.held", {}, things(a.held_keys, "key") + " held")),
    near.map((l) => limitLine(a.api, l)),
    near.length < (a.limits?.length ?? 0) && h("p", {}, h("a", { href: link("/limits", { api: a.api }) }, `all ${a.limits.length} limits`)));
}

function figure(name, n, small, field, text = count(n)) {
  return h("div", {}, h("dt", {}, name), h("dd", { "data-field": field }, text, small && [" ", h("small", {}, small)]));
}

function letters(s) {
  if (s.letters_all === 0) return empty("No dead letters", "weir keeps jobs here that it gave up or refused because a bucket was full, with the cause, until you redrive or purge them.");
  return h("div.cards", {}, s.letters.length === 0
    ? h("div.card", {}, h("h3", {}, h("a", { href: "/letters" }, things(s.letters_all, "letter"))), h("p.quiet", {}, "of too many keys to list here"))
    : s.letters.toSorted((a, b) => b.letters - a.letters).slice(0, 6).map((l) => h("div.card", { key: l.api + " " + l.reason },
      h("h3", {}, h("a", { href: link("/letters", { api: l.api || "_", reason: l.reason }) }, things(l.letters, "letter")), " ", h("span.chip", { class: l.reason === "unknown" ? "unknown" : "dead" }, l.reason)),
      h("p.quiet", {}, l.api || "no configured API", ": ", causeText(l.reason)))));
}
