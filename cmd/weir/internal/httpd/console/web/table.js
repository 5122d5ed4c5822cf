// Tables whose order and filters are in the address.
import { h } from "./dom.js";
import { change } from "./route.js";

/** sorted orders rows by one of orders, or in reverse if its name begins with a minus. */
export function sorted(rows, orders, by) {
  const back = by.startsWith("-"), order = orders[back ? by.slice(1) : by];
  if (!order) return rows;
  return rows.toSorted(back ? (a, b) => order(b, a) : order);
}

/** sortHead draws the header of a column that can sort. */
export function sortHead(name, label, order, shape = "") {
  const now = order === name ? "descending" : order === "-" + name ? "ascending" : null;
  return h("th", { scope: "col", class: shape, "aria-sort": now }, h("button", { type: "button", on: { click: () => change({ order: order === name ? "-" + name : name }) } }, label, now && h("span", { "aria-hidden": "true" }, now === "descending" ? " ↓" : " ↑")));
}

let typing = 0;

/** filterField is a field whose text goes into the address when the user stops typing. */
export function filterField(name, label, value, { placeholder = "", narrow = false } = {}) {
  return h("div.field", { class: narrow ? "narrow" : "", key: "filter-" + name }, h("label", { for: "filter-" + name }, label),
    h("input", { id: "filter-" + name, value, placeholder, autocomplete: "off", spellcheck: "false", on: {
      input: (event) => {
        const text = event.target.value;
        clearTimeout(typing);
        typing = setTimeout(() => change({ [name]: text.trim() }, { replace: true }), 350);
      },
    } }));
}

/** choice is a field with a list of values. */
export function choice(name, label, value, options, { narrow = true } = {}) {
  return h("div.field", { class: narrow ? "narrow" : "", key: "filter-" + name }, h("label", { for: "filter-" + name }, label),
    h("select", { id: "filter-" + name, value, on: { change: (e) => change({ [name]: e.target.value }) } },
      h("option", { value: "" }, "any"), options.map((o) => h("option", { key: o, value: o, selected: o === value }, o))));
}
