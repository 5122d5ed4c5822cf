// The use of a shared limit, in the words of the command line.
import { h, textOf } from "./dom.js";
import { brief, money } from "./format.js";
import { moment, said } from "./time.js";
import { meter } from "./meter.js";

/** usedText says how much of a limit is used. */
export function usedText(l) {
  const amount = (n) => (l.unit === "millionths" ? money(n) : String(n));
  const text = [];
  if (l.unknown) text.push("counts as used up: what was used is not known", l.why && [": ", said(l.why)]);
  else if (l.unit === "calls") text.push(`${l.used} of ${l.count} calls running`);
  else if (l.per_ms > 0) text.push(`${l.used} of ${l.count} used in the last ${brief(l.per_ms)}`);
  else if (l.count > 0) text.push(`${l.bound ? "at most " : ""}${amount(l.used)} of ${amount(l.count)} used`, l.until && [" until ", moment(l.until)]);
  if (l.replica) text.push(` at ${l.replica}`);
  if (l.bound) text.push(": what was called before the start is being added up");
  if (l.why && !l.unknown) text.push(": ", said(l.why));
  if (l.excess > 0) text.push(`${text.length > 0 ? "; " : ""}the vendor counts ${l.excess} more than weir until `, moment(l.excess_until));
  if (l.shadow) text.push(`${text.length > 0 ? ", " : ""}only watches: would have held ${l.held ?? 0} calls`);
  return text;
}

/** shareOf returns the used share of a limit: 1 is used up, and it may be more. */
export const shareOf = (l) => (l.unknown ? 1 : l.count > 0 ? l.used / l.count : 0);

/** lasting reports whether a limit stays used up until its period ends: a quota or a budget, not a rate. */
export const lasting = (l) => l.unit !== "calls" && !(l.per_ms > 0);

/** nearest returns the limits of an API to look at first. */
export const nearest = (a, most = 2) => (a.limits ?? []).toSorted((x, y) => Number(lasting(y)) - Number(lasting(x)) || shareOf(y) - shareOf(x)).slice(0, most);

/** limitLine draws one limit. A rate that is used up is normal, so it is not marked. */
export function limitLine(api, l) {
  const text = usedText(l);
  return h("div.limit", { key: "limit-" + api + l.limit }, h("b", {}, l.limit), h("span", {}, text), meter(shareOf(l), 1, `${api} ${l.limit}: ${textOf(text)}`, lasting(l) && !l.shadow ? [0.8, 1] : [9, 9]));
}
