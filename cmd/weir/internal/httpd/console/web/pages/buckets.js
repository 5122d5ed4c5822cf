import { h } from "../dom.js";
import { change, go, link } from "../route.js";
import { count, things } from "../format.js";
import { list } from "../ask.js";
import { bucketTable } from "../buckettable.js";
import { empty, failed, waits, command } from "../said.js";
import { pauseButton } from "../pause.js";
import { stateOf } from "./overview.js";
import { filterField, sorted, sortHead } from "../table.js";

const most = 100; // buckets of an API in the list

const orders = {
  depth: (a, b) => b.depth - a.depth,
  key: (a, b) => a.key.localeCompare(b.key),
  wait: (a, b) => (b.wait_ms < 0 ? Infinity : b.wait_ms) - (a.wait_ms < 0 ? Infinity : a.wait_ms) || 0,
};

let held = null; // the order of the rows while the pointer is over them

/** buckets is the list of buckets of one API or of all, the deepest first. */
export const buckets = {
  path: "/buckets", title: "Buckets", nav: "Buckets", key: "b", over: ["/bucket"],
  view(app, query) {
    const s = app.snapshot?.status, api = query.get("api") ?? "", text = query.get("text") ?? "", order = query.get("order") ?? "depth";
    if (!s) return [h("h1", {}, "Buckets"), waits("the buckets")];
    const apis = s.apis.map((a) => a.api), one = s.apis.find((a) => a.api === api);
    const found = all(app, api || null, apis);
    const shown = steady(sorted(found.buckets.filter((b) => b.key.includes(text)), orders, order), order + api + text);
    const jobs = (one ? [one] : s.apis).reduce((n, a) => n + a.jobs, 0), keys = (one ? [one] : s.apis).reduce((n, a) => n + a.keys, 0);
    return [
      h("div.bar", {}, h("h1", {}, one ? [api, " ", h("span.chip", { class: stateOf(one).shade }, stateOf(one).chip)] : "Buckets"),
        one && app.operator() && h("div.actions", {}, pauseButton(app, api, undefined, one.pause))),
      one && stateOf(one).why && h("p.quiet", {}, stateOf(one).why),
      h("div.filters", {},
        h("div.field", {}, h("label", { for: "api" }, "Api"), h("select", { id: "api", value: api, on: { change: (e) => change({ api: e.target.value }) } },
          h("option", { value: "" }, "all"), apis.map((a) => h("option", { key: a, value: a, selected: a === api }, a)))),
        filterField("text", "Key contains", text),
        h("form.field", { on: { submit: (e) => open(e, api || apis[0]) } }, h("label", { for: "exact" }, "Any key, exactly"), h("input", { id: "exact", placeholder: "customer-7", autocomplete: "off" }))),
      h("p.quiet", { role: "status" }, `${things(jobs, "job")} in ${things(keys, "bucket")}`, shown.length < keys && `; ${count(shown.length)} shown`),
      found.error && failed(found.error),
      shown.length > 0
        ? h("div", { on: { pointerenter: () => { held ??= shown.map(name); }, pointerleave: () => { held = null; app.draw(); } } },
          bucketTable(app, shown, `Buckets of ${api || "all apis"}, ordered by ${order}`, (n, label, shape) => sortHead(n, label, order, shape)))
        : text ? empty("No such bucket", `None of the deepest ${most} buckets has “${text}” in its key.`)
          : empty("Nothing waits", "Every bucket is empty. Publish a job and watch its bucket fill and leak:", h("code", {}, `weir submit ${api || apis[0] || "API"} customer-7 --data '{"hello":"world"}'`)),
      api && command(`weir keys ${api}`),
    ];
  },
};

const name = (b) => b.api + "\n" + b.key;

// steady keeps the order of the rows while the pointer is over them.
function steady(rows, of) {
  if (!held) return rows;
  const place = new Map(held.map((n, i) => [n, i]));
  return rows.toSorted((a, b) => (place.get(name(a)) ?? Infinity) - (place.get(name(b)) ?? Infinity) || 0);
}

// all returns the buckets to show: the deepest, which every snapshot has, and more of them if one API is chosen.
function all(app, api, apis) {
  if (api === null) return { buckets: app.snapshot.buckets };
  const more = app.answers.use(`apis/${encodeURIComponent(api)}/keys?limit=${most}`, 2000);
  const fresh = app.snapshot.buckets.filter((b) => b.api === api), known = new Set(fresh.map((b) => b.key));
  const rest = list(more.value, "keys").filter((b) => !known.has(b.key)).map((b) => ({ api, ...b }));
  return { buckets: [...fresh, ...rest], error: more.error?.status === 404 ? null : more.error };
}

function open(event, api) {
  event.preventDefault();
  const key = event.currentTarget.querySelector("input").value;
  if (key !== "") go(link("/bucket", { api, key }));
}
