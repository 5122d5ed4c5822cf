// Numbers, times and durations in the same format as the command line.

const second = 1000, minute = 60 * second, hour = 60 * minute, day = 24 * hour;

const plain = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** count writes a whole number with separators. */
export const count = (n) => (n === undefined || n === null ? "–" : plain.format(n));

/** things writes a number of things: 1 key, 2 keys. */
export const things = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** brief writes a duration in milliseconds for people: 40ms, 3.2s, 5m10s, 3h20m, 12d. */
export function brief(ms) {
  if (ms <= 0) return "0s";
  if (ms < 1) return "<1ms";
  if (Math.round(ms) < second) return Math.round(ms) + "ms";
  if (ms < minute) {
    const tenths = Math.round(ms / 100);
    return tenths === 600 ? "1m" : (tenths / 10).toString() + "s";
  }
  if (ms < hour) {
    const s = Math.round(ms / second);
    return parts([[Math.floor(s / 3600), "h"], [Math.floor(s / 60) % 60, "m"], [s % 60, "s"]]);
  }
  if (ms < 2 * day) {
    const m = Math.round(ms / minute);
    return parts([[Math.floor(m / 60), "h"], [m % 60, "m"]]);
  }
  return Math.floor(ms / day) + "d";
}

function parts(list) {
  while (list.length > 0 && list[0][0] === 0) list.shift();
  const last = list.at(-1);
  if (list.length > 1 && last[0] === 0 && last[1] === "s") list.pop();
  return list.map(([n, unit]) => n + unit).join("");
}

/** rate writes a key's rate as in the configuration: 3/s, 300/3h. */
export function rate(r) {
  const per = r.per_us / 1000;
  const unit = { [second]: "s", [minute]: "min", [hour]: "h", [day]: "day" }[per] ?? period(per);
  return `${r.count}/${unit}`;
}

function period(ms) {
  for (const [size, unit] of [[day, "d"], [hour, "h"], [minute, "m"], [second, "s"]]) {
    if (ms >= size && ms % size === 0) return ms / size + unit;
  }
  return ms + "ms";
}

/** perSecond writes calls a second in the smallest unit of time with at least one call: 2/s, 1.5/min, 3/d. */
export function perSecond(n) {
  let unit = "s";
  for (const [times, longer] of [[60, "min"], [60, "h"], [24, "d"]]) {
    if (n >= 0.95 || n === 0) break;
    n *= times;
    unit = longer;
  }
  return (n >= 10 ? n.toFixed(0) : n.toFixed(1).replace(/\.0$/, "")) + "/" + unit;
}

/** money writes millionths of the currency with at least two decimal places. */
export function money(millionths) {
  const text = (Number(millionths) / 1e6).toFixed(6).replace(/0{1,4}$/, "");
  const [whole, part] = text.split(".");
  return plain.format(Number(whole)) + "." + part;
}

/** price writes a decimal text with separators. */
export function price(text) {
  if (text === undefined || text === null || text === "") return "–";
  const [whole, part] = String(text).split(".");
  return plain.format(Number(whole)) + (part ? "." + part : "");
}

/** bytes writes a size: 40 bytes, 3.2 KiB. */
export function bytes(n) {
  if (n < 1024) return things(n, "byte");
  for (const unit of ["KiB", "MiB", "GiB"]) {
    n /= 1024;
    if (n < 1024) return n.toFixed(n < 10 ? 1 : 0) + " " + unit;
  }
  return n.toFixed(0) + " TiB";
}
