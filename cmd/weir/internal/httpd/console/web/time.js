// Times in the user's time zone, with UTC in the title. Titles and labels, which hold only text, keep the UTC of the command line.
import { h } from "./dom.js";
import { brief } from "./format.js";

const two = (n) => String(n).padStart(2, "0");
const date = (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
const ofDay = (d) => `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;

const element = (at, text, attrs = {}) => {
  const utc = new Date(at).toISOString();
  return h("time.n", { ...attrs, datetime: utc, title: utc }, text);
};

/** moment writes a time to the second, without the date if it is today. */
export function moment(at, now = Date.now(), attrs) {
  const d = new Date(at);
  return element(at, date(d) === date(new Date(now)) ? ofDay(d) : `${date(d)} ${ofDay(d).replace(/:00$/, "")}`, attrs);
}

/** exact writes a time to the millisecond, with the date. */
export function exact(at, attrs) {
  const d = new Date(at);
  return element(at, `${date(d)} ${ofDay(d)}.${String(d.getMilliseconds()).padStart(3, "0")}`, attrs);
}

/** since writes how long ago a time was. */
export const since = (at, now) => element(at, brief(now - Date.parse(at)) + " ago");

/** said shows a text of weir: its times of UTC are local, and what stands between backquotes is a command or a field. */
export function said(text, now) {
  return String(text ?? "").split(/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|`[^`]+`)/).map((part, i) => {
    if (i % 2 === 0) return part;
    return part.startsWith("`") ? h("code", {}, part.slice(1, -1)) : moment(part, now);
  });
}
