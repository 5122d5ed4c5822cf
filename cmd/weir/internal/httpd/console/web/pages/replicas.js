import { h } from "../dom.js";
import { brief, count, things } from "../format.js";
import { empty, waits, command } from "../said.js";

/** replicas is the page of dispatching replicas and their partitions. */
export const replicas = {
  path: "/replicas", title: "Replicas", nav: "Replicas", key: "p", over: ["/doctor"],
  view(app) {
    const s = app.snapshot?.status;
    if (!s) return [h("h1", {}, "Replicas"), waits("the replicas")];
    const partitions = s.apis.reduce((n, a) => n + a.partitions, 0), owned = s.apis.reduce((n, a) => n + a.owned, 0);
    return [
      h("h1", {}, "Replicas"),
      h("p", {}, `${things(s.replicas.length, "replica")} dispatch${s.replicas.length === 1 ? "es" : ""}; `, s.intakes < 0 ? "with these rights weir cannot ask for intakes" : `${things(s.intakes, "intake")} take${s.intakes === 1 ? "s" : ""} jobs`, `; ${owned} of ${things(partitions, "partition")} dispatched.`),
      s.replicas.length === 0 ? empty("No replica dispatches", "Start a replica with the role dispatch:", h("code", {}, "weir serve"))
        : h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, "Replicas"), h("thead", {}, h("tr", {}, ["Replica", "Ready", "Partitions", "Share", "Configuration", "Version", "Up", "Roles"].map((n) => h("th", { scope: "col", class: n === "Partitions" || n === "Configuration" ? "n" : "" }, n)))),
          h("tbody", {}, s.replicas.map((r) => h("tr", { key: r.instance },
            h("td.whole", { "data-name": "Replica" }, r.instance), h("td", { "data-name": "Ready" }, h("span.chip", { class: r.ready ? "good" : "dead" }, r.ready ? "ready" : "not ready"), r.why && h("p.quiet.whole", {}, r.why)),
            h("td.n", { "data-name": "Partitions" }, count(r.partitions)), h("td.draw", { "data-name": "Share" }, h("span.pips", { role: "img", "aria-label": `${r.partitions} of ${partitions} partitions` }, pips(r.partitions, partitions))),
            h("td.n", { "data-name": "Configuration" }, r.config, r.config < s.config && h("span.chip.held", {}, "behind")), h("td", { "data-name": "Version" }, r.version), h("td.nowrap", { "data-name": "Up" }, brief(app.now() - Date.parse(r.started))), h("td", { "data-name": "Roles" }, r.roles.join(", "))))))),
      h("h2", {}, "Partitions"),
      h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, "Partitions of each api"), h("thead", {}, h("tr", {}, ["Api", "Dispatched", "By", "Buckets", "Jobs"].map((n, i) => h("th", { scope: "col", class: i === 3 || i === 4 ? "n" : "" }, n)))),
        h("tbody", {}, s.apis.map((a) => h("tr", { key: a.api }, h("td", { "data-name": "Api" }, a.api), h("td.fit", { "data-name": "Dispatched" }, h("span.chip", { class: a.owned === a.partitions ? "good" : "dead" }, `${a.owned} of ${a.partitions}`)),
          h("td.owners", { "data-name": "By" }, owners(a)), h("td.n", { "data-name": "Buckets" }, count(a.keys)), h("td.n", { "data-name": "Jobs" }, count(a.jobs))))))),
      h("p.related", {}, h("a", { href: "/doctor" }, "Ask the doctor"), " about disk, clock, Redis and the connections to the APIs."),
      command("weir status"),
    ];
  },
};

// pips draws partitions as cells and fills those that have an owner.
function pips(filled, all) {
  if (all > 64) return h("span.meter", { css: { "--share": String(filled / all) } }, h("span", {}));
  return Array.from({ length: all }, (_, i) => h("span", { key: String(i), class: i < filled ? "on" : "" }));
}

// owners lists the replicas that dispatch an API, each with its partitions.
function owners(a) {
  const of = new Map();
  (a.owners ?? []).forEach((who, number) => of.set(who, [...(of.get(who) ?? []), number]));
  return [...of].sort().map(([who, numbers]) => h("div", { key: who, "data-owner": who }, who ? h("span.whole", {}, who) : h("span.chip.dead", {}, "no owner"), " ", h("span.quiet.n", {}, ranges(numbers))));
}

// ranges writes ordered numbers as ranges: 0–3, 6.
function ranges(numbers) {
  const parts = [];
  for (const n of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else parts.push([n, n]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}
