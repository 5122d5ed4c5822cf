// Buckets as a table with a picture of each.
import { h, none, textOf } from "./dom.js";
import { link } from "./route.js";
import { brief, count, perSecond, rate } from "./format.js";
import { pace, slots } from "./past.js";
import { flow } from "./flow.js";
import { vessel } from "./vessel.js";
import { shade, short, stopped, waiting } from "./wait.js";

/** emptyIn says when a bucket will be empty if no more jobs arrive: the wait of a job that arrives now. */
export const emptyIn = (b) => (b.wait_ms < 0 ? "when it goes on" : b.depth === 0 ? "empty" : brief(b.wait_ms));

/** pictureText describes the picture of a bucket in words. */
export function pictureText(b, p) {
  return `${count(b.depth)} of ${count(b.capacity)} jobs${p ? `, ${perSecond(p.came)} in, ${perSecond(p.left)} out` : ""}; ${b.wait_ms < 0 ? "unknown when it is empty" : "empty in " + emptyIn(b)}`;
}

/** bucketTable lists buckets. head(name, label, shape) draws the header of a column that can sort. */
export function bucketTable(app, buckets, caption, head = (_, label, shape = "") => h("th", { scope: "col", class: shape }, label)) {
  const several = new Set(buckets.map((b) => b.api)).size > 1;
  return h("div.table", {}, h("table.folds.buckets", {}, h("caption.unseen", {}, caption),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span.unseen", {}, "Picture")), head("key", "Key"), head("depth", "Level", "n"), h("th", { scope: "col" }, "Last 15 minutes"),
      h("th.n", { scope: "col" }, "In"), h("th.n", { scope: "col" }, "Out"), h("th", { scope: "col" }, "Rate"), head("wait", "Empty in", "n"), h("th", { scope: "col" }, "Waits for"))),
    h("tbody", {}, buckets.map((b) => row(app, b, several)))));
}

function row(app, b, several) {
  if (b.depth > 0) app.history(b.api, b.key);
  const line = app.past.of(b.api, b.key), p = pace(line);
  return h("tr", { key: b.api + "\n" + b.key, "data-key": b.key },
    h("td.picture.fit", {}, vessel({ level: b.depth, capacity: b.capacity, came: p?.came, left: p?.left, stopped: stopped(b.waits), label: pictureText(b, p) })),
    h("td.whole", { "data-name": "Key" }, h("span", {}, several && h("span.quiet", {}, b.api + "/"), h("a", { href: link("/bucket", { api: b.api, key: b.key }) }, b.key))),
    h("td.n.nowrap", { "data-name": "Level" }, h("span", {}, h("b", { "data-field": "depth" }, count(b.depth)), h("span.quiet", {}, " of " + count(b.capacity)))),
    h("td.draw", { "data-name": "Last 15 minutes" }, flow(slots(line, app.now()), { capacity: b.capacity, of: b.key })),
    h("td.n.nowrap", { "data-name": "In" }, p ? perSecond(p.came) : none),
    h("td.n.nowrap", { "data-name": "Out" }, p ? perSecond(p.left) : none),
    h("td.nowrap", { "data-name": "Rate" }, rate(b.rate)),
    h("td.n.nowrap", { "data-name": "Empty in", "data-field": "wait" }, emptyIn(b)),
    h("td.fit.whole", { "data-name": "Waits for" }, h("span.chip", { class: shade(b.waits), title: textOf(waiting(b.waits)) }, short(b.waits))));
}
