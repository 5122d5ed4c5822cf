import { h } from "../dom.js";
import { link } from "../route.js";
import { things } from "../format.js";
import { limitLine, lasting, shareOf } from "../limit.js";
import { choice } from "../table.js";
import { verification } from "../proposal.js";
import { dayChart } from "../daychart.js";
import { moment } from "../time.js";
import { empty, failed, waits, command } from "../said.js";

const mostDays = 6; // apis whose last day is drawn

// day draws how the limits of an API were used in the last day, by the ledger.
function day(app, api) {
  const path = `apis/${encodeURIComponent(api)}/use`, asked = app.answers.use(path, 60_000, "use"), use = asked.value;
  if (use?.reading || use?.behind > 0) app.answers.use(path, 5000, "use"); // it soon counts more
  return h("div.card", { key: api }, h("h3", {}, api),
    use ? [use.ledger_begins && h("p.quiet", {}, "Calls count since ", moment(use.ledger_begins, app.now()), use.reading ? ": the ledger is still being read." : ": the ledger has no earlier ones."), use.behind > 0 && h("p.quiet", {}, `Not counted yet: the newest ${things(use.behind, "call")}.`), use.unreadable > 0 && h("p.quiet", {}, `${things(use.unreadable, "record")} cannot be read: not counted.`), use.limits.map((l) => dayChart(use, l)), use.limits.length === 0 && h("p.quiet", {}, "Its limits count only calls in flight.")]
      : asked.error?.status === 404 ? h("p.quiet", {}, "The ledger has no calls yet.") : asked.error ? failed(asked.error) : waits("the ledger"));
}

const proof = { busy: false, error: null, found: null };

/** limits is the page of shared limits and their use. */
export const limits = {
  path: "/limits", title: "Limits", nav: "Limits", key: "m",
  view(app, query) {
    const s = app.snapshot?.status, api = query.get("api") ?? "";
    if (!s) return [h("h1", {}, "Limits"), waits("the limits")];
    const shown = s.apis.filter((a) => api === "" || a.api === api);
    const limited = shown.filter((a) => a.limits?.length > 0);
    const near = shown.flatMap((a) => (a.limits ?? []).filter((l) => lasting(l) && !l.shadow && shareOf(l) >= 0.8).map((l) => ({ a, l }))).toSorted((x, y) => shareOf(y.l) - shareOf(x.l));
    return [
      h("h1", {}, "Limits"),
      h("div.filters", {}, choice("api", "Api", api, s.apis.map((a) => a.api))),
      near.length > 0 && h("div.told.warn", {}, h("p", {}, h("strong", {}, `${things(near.length, "limit")} ${near.length === 1 ? "is" : "are"} at least 80 % used up: `), near.map(({ a, l }, i) => [i > 0 && ", ", `${a.api}/${l.limit}`]))),
      limited.length === 0 && empty("No limit is shared", "Each bucket has its own rate. Limits for all keys of an API are under limits in weir.yaml:", h("code", {}, "limits: [{name: account, rate: 100/s}, {name: spend, budget: 200.00/day}]")),
      h("div.cards", {}, limited.map((a) => h("section.card", { key: a.api, "aria-labelledby": "limits-" + a.api },
        h("h2", { id: "limits-" + a.api }, h("a", { href: link("/buckets", { api: a.api }) }, a.api)),
        a.limits.toSorted((x, y) => Number(lasting(y)) - Number(lasting(x)) || shareOf(y) - shareOf(x)).map((l) => limitLine(a.api, l))))),
      limited.length > 0 && [h("h2", {}, "The last day"), h("div.cards", {}, limited.slice(0, mostDays).map((a) => day(app, a.api)))],
      limited.length > mostDays && h("p.quiet", {}, "Choose an api to see its last day."),
      h("p.quiet.spaced", {}, "A used-up rate or in-flight limit makes calls wait for a moment, which is normal. A used-up quota or budget holds its API until its period ends."),
      app.operator() && verification(app, proof),
      command("weir status"),
    ];
  },
};
