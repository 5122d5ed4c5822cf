import { h } from "../dom.js";
import { link } from "../route.js";
import { moment, said } from "../time.js";
import { list } from "../ask.js";
import { choice, filterField } from "../table.js";
import { empty, failed, waits, command } from "../said.js";

const most = 100;

let types = []; // of events, as weir last listed them

/** events lists recent events. */
export const events = {
  path: "/events", title: "Events", nav: "Events", key: "e",
  view(app, query) {
    const type = query.get("type") ?? "", api = query.get("api") ?? "", key = query.get("key") ?? "", since = query.get("since") ?? "";
    const asked = app.answers.use("events?" + new URLSearchParams(Object.entries({ type, api, key, since, limit: most }).filter(([, v]) => v !== "")), 2000);
    types = asked.value?.types ?? types;
    const shown = newestFirst(list(asked.value, "events").map((e, i) => ({ ...e, text: asked.value.texts?.[i] })));
    return [
      h("h1", {}, "Events"),
      h("div.filters", {}, choice("type", "Type", type, type && !types.includes(type) ? [...types, type] : types), choice("api", "Api", api, app.snapshot?.status.apis.map((a) => a.api) ?? []), filterField("key", "Key", key), filterField("since", "Since", since, { placeholder: "1h", narrow: true })),
      asked.error && asked.error.status !== 404 && failed(asked.error),
      asked.value === undefined && !asked.error ? waits("the events")
        : shown.length === 0 ? empty("No events", "weir publishes events of overflow, letters, holds, budgets and operators' commands, and keeps them for a day.")
          : h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, "Events, the newest first"), h("thead", {}, h("tr", {}, ["When", "Type", "About", "What"].map((n) => h("th", { scope: "col" }, n)))),
            h("tbody", {}, shown.map((e) => h("tr", { key: e.id },
              h("td.nowrap.fit", { "data-name": "When" }, moment(e.time, app.now())), h("td.fit", { "data-name": "Type" }, h("span.chip", { class: shadeOf(kind(e)) }, kind(e))),
              h("td.whole", { "data-name": "About" }, about(e)), h("td.long", { "data-name": "What" }, h("span", {}, what(e)))))))),
      command(`weir events tail${type ? " --type " + type : ""}${api ? " --api " + api : ""} --since 1h`),
    ];
  },
};

const newestFirst = (all) => all.toSorted((a, b) => Date.parse(b.time) - Date.parse(a.time));

const kind = (e) => e.type.replace(/^weir\./, "").replace(/\.v1$/, "");

const shadeOf = (type) => ({ throttled: "dead", dead: "dead", unhealthy: "dead", ledger: "dead", held: "held", budget: "held", clock: "held", excess: "held", resumed: "good", healthy: "good", revealed: "unknown", purged: "unknown" }[type] ?? "calm");

function about(e) {
  const api = e.source.replace(/^\/weir\//, ""), key = e.subject ?? "";
  if (!api) return "–";
  return key ? h("a", { href: link("/bucket", { api, key }) }, `${api}/${key}`) : h("a", { href: link("/buckets", { api }) }, api);
}

/** what shows the sentence of an event. Its letter, or its redrive, is a link. */
function what(e) {
  const d = e.data ?? {}, text = e.text ?? "";
  const [name, href] = d.dead_letter_seq ? [`letter ${d.dead_letter_seq}`, link("/letter", { seq: d.dead_letter_seq })]
    : d.task ? [`redrive ${d.task}`, link("/redrives", { id: d.task })] : [];
  const at = name ? text.lastIndexOf(name) : -1;
  return at < 0 ? said(text) : [said(text.slice(0, at)), h("a", { href }, name), said(text.slice(at + name.length))];
}
