// A bar that shows how near a value is to its bound.
import { h } from "./dom.js";

/** meter draws used of most. grave has the shares from which the bar counts as near and as reached. */
export function meter(used, most, label, grave = [0.8, 1]) {
  const share = most > 0 ? used / most : 0;
  const state = share >= grave[1] ? "reached" : share >= grave[0] ? "near" : "";
  return h("span.meter", { class: state, role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": most, "aria-valuenow": Math.min(used, most), "aria-valuetext": label,
    css: { "--share": String(Math.min(1, Math.max(0, share))) } }, h("span", {}));
}
