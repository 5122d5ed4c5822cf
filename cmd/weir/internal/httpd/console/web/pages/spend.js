import { h } from "../dom.js";
import { change } from "../route.js";
import { count, price, things } from "../format.js";
import { moment } from "../time.js";
import { meter } from "../meter.js";
import { choice, filterField } from "../table.js";
import { empty, failed, waits, command } from "../said.js";

/** spend shows the ledger's spending beside budgets. */
export const spend = {
  path: "/spend", title: "Spend", nav: "Spend", key: "s",
  view(app, query) {
    const by = query.get("by") ?? "api", api = query.get("api") ?? "", since = query.get("since") ?? "";
    const asked = app.answers.use("spend?" + new URLSearchParams(Object.entries({ by, api, since }).filter(([, v]) => v)), 5000), a = asked.value;
    const groups = a?.groups ?? [], most = Math.max(0.000001, ...groups.map((g) => Number(g.spent) + Number(g.in_doubt)));
    return [
      h("h1", {}, "Spend"),
      h("div.filters", {}, h("div.field", { class: "narrow" }, h("label", { for: "by" }, "By"), h("select", { id: "by", value: by, on: { change: (e) => change({ by: e.target.value }) } }, ["api", "key", "tenant", "day"].map((o) => h("option", { value: o, selected: o === by }, o)))),
        choice("api", "Api", api, app.snapshot?.status.apis.map((x) => x.api) ?? []), filterField("since", "Since", since, { placeholder: "2h, 30d", narrow: true })),
      asked.error && (asked.error.status === 404 ? empty("Nothing has been spent yet", "The ledger has no calls.") : failed(asked.error)),
      !a && !asked.error && waits("the ledger"),
      a && [
        h("dl.figures", {}, h("div", {}, h("dt", {}, "spent"), h("dd", { "data-field": "spent" }, price(a.spent))), h("div", {}, h("dt", {}, "in doubt"), h("dd", {}, price(a.in_doubt))),
          more(a).map((c) => h("div", {}, h("dt", {}, c.small ?? c.name), h("dd", { "data-field": c.name }, c.of(a)))),
          h("div", {}, h("dt", {}, "since"), h("dd", {}, h("small", {}, moment(a.since))))),
        remarks(a).map((what) => h("p.quiet", {}, what)),
        (a.budgets ?? []).length > 0 && [h("h2", {}, "Budgets"), h("div.cards", {}, onceEach(a.budgets).map((b) => h("section.card", { key: ofLimit(b) }, h("div.limit", {}, h("b", {}, ofLimit(b)), h("span", {}, `${price(b.counted ?? b.spent)} of ${price(b.budget)}${b.shadow ? ", only watches" : ""}`), meter(Number(b.counted ?? b.spent), Number(b.budget), ofLimit(b))),
          h("p.quiet", {}, `spent ${price(b.spent)}`, Number(b.in_doubt) > 0 && `, ${price(b.in_doubt)} in doubt`, b.until && [", until ", moment(b.until)], b.ledger_begins && [", counted since ", moment(b.ledger_begins)]))))],
        h("h2", {}, `By ${by}`),
        groups.length > 0 ? h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, `Spending by ${by}`), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, by), h("th.n", { scope: "col" }, "Calls"), h("th.n", { scope: "col" }, "Spent"), h("th.n", { scope: "col" }, "In doubt"), more(a).map((c) => h("th.n", { scope: "col" }, c.name)), h("th", { scope: "col" }, "Share"))),
          h("tbody", {}, groups.map((g) => h("tr", { key: name(g, by) }, h("td.whole", { "data-name": by }, name(g, by)), h("td.n", { "data-name": "Calls" }, count(g.calls)), h("td.n", { "data-name": "Spent" }, price(g.spent)), h("td.n", { "data-name": "In doubt" }, price(g.in_doubt)), more(a).map((c) => h("td.n", { "data-name": c.name }, c.of(g))),
            h("td.draw", { "data-name": "Share" }, meter(Number(g.spent) + Number(g.in_doubt), most, `${name(g, by)}: ${g.spent}`, [9, 9]))))))) : empty("Nothing was spent", "No call of this selection was billed."),
      ],
      command(`weir spend --by ${by}${api ? " --api " + api : ""}${since ? " --since " + since : ""}`),
    ];
  },
};

// more are the figures that only some APIs have, as `weir spend` names them: answers that were given again, and what usage counts.
function more(a) {
  return [
    ...(a.reused > 0 ? [{ name: "Reused", small: "reused", of: (g) => count(g.reused ?? 0) }, { name: "Saved", small: "saved", of: (g) => price(g.saved) }] : []),
    ...Object.keys(a.usage ?? {}).sort().map((name) => ({ name, of: (g) => count(g.usage?.[name] ?? 0) })),
  ];
}

// remarks are what the sums lack.
function remarks(a) {
  return [
    a.ledger_begins && ["Calls count since ", moment(a.ledger_begins), a.reading ? ": the ledger is still being read." : ": earlier ones are not known any more."],
    a.behind > 0 && `Not counted yet: the newest ${things(a.behind, "call")}.`,
    a.keys_since && ["Calls before ", moment(a.keys_since), " are listed without their keys: there was no room for more keys."],
    a.unreadable > 0 && `${things(a.unreadable, "record")} cannot be read: not counted.`,
    a.gone?.length > 0 && "Parts of the ledger were lost: not counted. weir spend says which.",
    a.lines > 0 && `${count(a.groups.length)} of ${count(a.lines)} lines are listed.`,
  ].filter(Boolean);
}

// ofLimit is the name of a budget. One of an account has the account in its own name.
function ofLimit(b) {
  return b.limit.includes("/") ? b.limit : `${b.api}/${b.limit}`;
}

// onceEach leaves one of the equal entries that an account's budget has for each api.
function onceEach(budgets) {
  return [...new Map(budgets.map((b) => [ofLimit(b), b])).values()];
}

function name(g, by) {
  if (by === "day") return g.day || "others";
  if (by === "key") return `${g.api}/${g.key || "-"}`;
  if (by === "tenant") return `${g.api}/${g.tenant || "-"}`;
  return g.api || "others";
}
