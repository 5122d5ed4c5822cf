// The use of a limit in the last day, against its allowance: of a quota or a budget what was used of its period at each time, of a rate what
// was used in each quarter of an hour.
import { h } from "./dom.js";
import { moment } from "./time.js";
import { money, count } from "./format.js";

const wide = 360, high = 90, foot = 1, least = 1.5; // the height of the smallest use

/** dayChart draws one limit of an answer of /apis/{api}/use. */
export function dayChart(use, l) {
  const bars = l.period ? l.level : l.used, amount = (n) => (l.unit === "millionths" ? money(n) : count(n));
  const most = Math.max(...bars), top = Math.max(1, most, l.allowance), step = wide / bars.length, y = (n) => high - foot - (n / top) * (high - foot - 2);
  const last = bars.at(-1), sum = l.used.reduce((a, b) => a + b, 0);
  const text = l.period ? `${amount(last)} of ${amount(l.allowance)} used now; at most ${amount(most)} in the last day`
    : `at most ${amount(most)} of ${amount(l.allowance)} in a quarter of an hour; ${amount(sum)} in the last day`;
  return h("figure.day", { key: use.api + "/" + l.limit, "data-limit": l.limit }, h("figcaption", {}, h("b", {}, l.limit), " ", h("span.quiet", {}, text)),
    h("svg.flow.use", { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", role: "img", "aria-label": `${l.limit}, the last day: ${text}` },
      bars.map((n, i) => n > 0 && h("rect", { class: l.allowance > 0 && n >= l.allowance ? "reached" : "used", x: (i * step).toFixed(1), width: (step * (l.period ? 1.02 : 0.8)).toFixed(1), y: Math.min(y(n), high - foot - least).toFixed(1), height: Math.max(high - foot - y(n), least).toFixed(1) })),
      h("line.floor", { x1: 0, x2: wide, y1: high - foot, y2: high - foot }),
      h("line.rim", { x1: 0, x2: wide, y1: y(l.allowance).toFixed(1), y2: y(l.allowance).toFixed(1) })),
    h("p.legend", {}, h("span", {}, moment(use.from)), h("span.of-allowance", {}, `allowed: ${amount(l.allowance)}${l.period ? "" : " in 15 min"}`), h("span.quiet", {}, "now")));
}
