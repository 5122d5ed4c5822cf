import { h } from "../dom.js";
import { change, link } from "../route.js";
import { things } from "../format.js";
import { said, since } from "../time.js";
import { list } from "../ask.js";
import { causeText, reasons, remedy, shadeOf } from "../cause.js";
import { choice, filterField } from "../table.js";
import { empty, failed, waits, command } from "../said.js";
import { selection, asQuery, asFlags } from "../selection.js";
import { exportLink, importButton, reconcileButton } from "../transfer.js";
import { redriveButton, purgeButton } from "../redrive.js";

const perPage = 50;

/** letters is the page of dead letters: their causes, and the letters of a selection. */
export const letters = {
  path: "/letters", title: "Dead letters", nav: "Letters", key: "l", over: ["/letter"],
  count: (app) => app.snapshot?.status.letters_all ?? 0, grave: () => true,
  view(app, query) {
    const picked = selection(query), before = query.get("before") ?? "";
    const stats = app.answers.use("dead/stats?" + asQuery(picked), 15000), rows = app.answers.use("dead?" + asQuery(picked, { limit: perPage, before }), 15000);
    fresh(app);
    const counted = stats.value !== undefined, counts = counted ? list(stats.value, "causes") : outlined(app, picked), shown = list(rows.value, "letters");
    const total = counts.reduce((n, c) => n + c.letters, 0), any = Object.keys(picked).length > 0;
    if (!counted && rows.value === undefined) return [h("h1", {}, "Dead letters"), filters(app, picked), stats.error ? failed(stats.error) : waits("the letters")];
    return [
      h("div.bar", {}, h("h1", {}, total > 0 ? `${things(total, "letter")}, ${things(counts.length, "cause")}` : "Dead letters"),
        app.operator() && h("div.actions", {}, counted && total > 0 && !picked.job && [redriveButton(app, picked, total), reconcileButton(app, picked, total), exportLink(picked), purgeButton(app, picked, total)], importButton(app))),
      counts.length > 0 && h("section", { "aria-label": "Causes" }, h("h2.unseen", {}, "Causes"), h("div.cards.causes", {}, counts.slice(0, 9).map((c) => causeCard(app, c, picked)), counts.length > 9 && h("p.quiet", {}, `and ${things(counts.length - 9, "cause")} more`))),
      !counted && (stats.error ? failed(stats.error) : h("p.quiet", { role: "status" }, "Counting by status and bill …")),
      filters(app, picked),
      rows.value === undefined && !rows.error && waits("the letters"),
      rows.error && failed(rows.error),
      shown.length > 0 ? [table(app, shown, total), pages(before, rows.value.next)]
        : rows.value === undefined ? null : any ? empty("No letter matches", h("button", { type: "button", on: { click: () => change(Object.fromEntries(Object.keys(picked).map((k) => [k, ""]))) } }, "Show all letters"))
          : empty("No dead letters", "weir keeps jobs here that it gave up or refused because a bucket was full, with the cause, until you redrive or purge them. No job has been lost."),
      command(["weir dead ls", ...asFlags(picked)].join(" ")),
    ];
  },
};

// outlined returns the causes in the snapshot, by API and reason, which are shown until all letters have been counted.
function outlined(app, picked) {
  if (Object.keys(picked).some((name) => name !== "api" && name !== "reason")) return [];
  return (app.snapshot?.status.letters ?? []).filter((c) => (!picked.api || (c.api || "_") === picked.api) && (!picked.reason || c.reason === picked.reason))
    .map((c) => ({ ...c, status: 0 })).sort((a, b) => b.letters - a.letters);
}

// fresh asks for the letters anew when their number has changed, at most every two seconds, because weir reads all of them for it.
const known = { all: null, at: 0 };

function fresh(app) {
  const all = app.snapshot?.status.letters_all ?? null;
  if (all === known.all || Date.now() - known.at < 2000) return;
  if (known.all !== null) app.answers.stale("dead");
  Object.assign(known, { all, at: Date.now() });
}

function causeCard(app, c, picked) {
  const query = { ...picked, api: c.api || "_", reason: c.reason, status: c.status || "" };
  const at = picked.reason === c.reason && picked.api === c.api;
  return h("div.card.cause", { key: JSON.stringify([c.api, c.reason, c.status, c.billed]), "data-reason": c.reason },
    h("h3", {}, h("a", { href: link("/letters", query), "aria-current": at ? "true" : null }, things(c.letters, "letter")), " ", h("span.chip", { class: shadeOf(c.reason) }, c.reason), c.status > 0 && [" ", h("span.chip", {}, String(c.status))]),
    h("p", {}, c.api || "no configured API", ": ", causeText(c.reason)),
    c.billed && h("p.quiet", {}, `billed: ${c.billed}`, " · ", c.letters === 1 ? since(c.newest, app.now()) : [since(c.oldest, app.now()), " to ", since(c.newest, app.now())]),
    h("p.quiet", {}, remedy(c.reason)));
}

function filters(app, picked) {
  const apis = app.snapshot?.status.apis.map((a) => a.api) ?? [];
  if (picked.api && !apis.includes(picked.api)) apis.push(picked.api);
  return h("div.filters", { key: "filters", role: "search", "aria-label": "Filter letters" },
    choice("api", "Api", picked.api ?? "", apis), choice("reason", "Reason", picked.reason ?? "", reasons),
    filterField("key", "Key", picked.key ?? "", {}), filterField("job", "Job", picked.job ?? ""), filterField("status", "Status", picked.status ?? "", { narrow: true }),
    filterField("since", "Since", picked.since ?? "", { placeholder: "2h, 1d, a time", narrow: true }), filterField("until", "Until", picked.until ?? "", { placeholder: "1h", narrow: true }),
    Object.keys(picked).length > 0 && h("button", { type: "button", on: { click: () => change(Object.fromEntries(Object.keys(picked).map((k) => [k, ""]))) } }, "Clear"));
}

function table(app, rows, total) {
  return h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, `Dead letters, the newest first; ${total} match`),
    h("thead", {}, h("tr", {}, ["Letter", "Died", "Api", "Key", "Reason", "Status", "Billed", "Detail"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((l) => h("tr", { key: String(l.seq), "data-seq": String(l.seq) },
      h("td.fit", { "data-name": "Letter" }, h("a", { href: link("/letter", { seq: l.seq }) }, String(l.seq))),
      h("td.nowrap", { "data-name": "Died" }, since(l.stored, app.now())),
      h("td", { "data-name": "Api" }, l.api || h("span.quiet", {}, l.asked_api ? `${l.asked_api}, not configured` : "–")),
      h("td.whole", { "data-name": "Key" }, l.key || "–"),
      h("td.fit", { "data-name": "Reason" }, h("span.chip", { class: shadeOf(l.reason) }, l.reason)),
      h("td.fit", { "data-name": "Status" }, l.status || "–"),
      h("td.fit", { "data-name": "Billed" }, h("span", { class: l.billed === "unknown" ? "chip unknown" : "" }, l.billed)),
      h("td.long", { "data-name": "Detail" }, said(l.detail)))))));
}

function pages(before, next) {
  if (!before && !next) return null;
  return h("nav.actions.pages", { "aria-label": "Pages of letters" },
    h("button", { type: "button", disabled: !before, on: { click: () => change({ before: "" }) } }, "Newest"),
    before && h("span.quiet.n", {}, `before letter ${before}`),
    h("button", { type: "button", disabled: !next, on: { click: () => change({ before: next }) } }, "Older"));
}
