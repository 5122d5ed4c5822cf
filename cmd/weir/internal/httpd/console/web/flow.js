// The last minutes as a picture: the level as water, and below it the arrivals (upwards) and departures (downwards) of each time slot.
import { h } from "./dom.js";
import { perSecond, count } from "./format.js";
import { span } from "./past.js";
import { moment } from "./time.js";

const settled = 30_000; // milliseconds by which samples may begin later than the drawing
const wide = 360; // width of the drawing; it is stretched to its room

/** flow draws slots that past.js makes. With capacity 0 the level is drawn relative to its highest value. */
export function flow(slots, { capacity = 0, height = 44, of, tall = false } = {}) {
  const known = slots.filter(Boolean);
  const upper = Math.round(height * 0.55), axis = upper + (height - upper) / 2, room = (height - upper) / 2 - 1;
  const top = Math.max(1, capacity, ...known.map((s) => s.level));
  const most = Math.max(0.000001, ...known.map((s) => Math.max(s.came + s.refused, s.left)));
  const step = wide / slots.length;
  const x = (i) => (i * step).toFixed(1);
  const up = (v) => ((v / most) * room).toFixed(2);
  return h("svg.flow", { viewBox: `0 0 ${wide} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": told(known, of), class: tall ? "tall" : "" },
    h("line.floor", { x1: 0, x2: wide, y1: upper, y2: upper }),
    capacity > 0 && h("line.rim", { x1: 0, x2: wide, y1: 1, y2: 1 }),
    water(slots, step, upper, top),
    slots.map((s, i) => s && s.came > 0 && h("rect.came", { x: x(i), width: (step * 0.8).toFixed(1), y: (axis - up(s.came)).toFixed(2), height: up(s.came) })),
    slots.map((s, i) => s && s.refused > 0 && h("rect.refused", { x: x(i), width: (step * 0.8).toFixed(1), y: (axis - up(s.came) - up(s.refused)).toFixed(2), height: up(s.refused) })),
    slots.map((s, i) => s && s.left > 0 && h("rect.left", { x: x(i), width: (step * 0.8).toFixed(1), y: axis, height: up(s.left) })),
    h("line.axis", { x1: 0, x2: wide, y1: axis, y2: axis }));
}

// water draws the level as areas, one for each stretch of time with samples.
function water(slots, step, upper, top) {
  const areas = [];
  let points = [];
  const close = () => {
    if (points.length > 0) areas.push(points);
    points = [];
  };
  slots.forEach((s, i) => {
    if (!s) return close();
    points.push([(i + 0.5) * step, upper - (s.level / top) * (upper - 1)]);
  });
  close();
  return areas.map((p) => {
    if (p.length === 1) p = [[p[0][0] - step / 2, p[0][1]], [p[0][0] + step / 2, p[0][1]]];
    const line = p.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join(" L");
    return [
      h("path.level", { d: `M${p[0][0].toFixed(1)} ${upper} L${line} L${p.at(-1)[0].toFixed(1)} ${upper} z` }),
      h("path.surface", { d: `M${line}` }),
    ];
  });
}

function told(known, of) {
  if (known.length === 0) return `${of}: no samples of the last minutes yet`;
  const last = known.at(-1);
  const most = Math.max(...known.map((s) => s.level));
  return `${of}, the last 15 minutes: level now ${count(last.level)}, at most ${count(most)}; in ${perSecond(last.came)}, out ${perSecond(last.left)}`;
}

/** legend explains the colours of a flow, and says since when there are samples: those of a process end with it. */
export const legend = (line, now, refused = false) => h("p.legend", {},
  h("span.of-level", {}, "waiting"), h("span.of-came", {}, "in"), h("span.of-left", {}, "out"), refused && h("span.of-refused", {}, "throttled"),
  h("span.quiet", {}, line.length === 0 ? "no samples yet" : line[0].at - now < settled - span ? "15 min" : ["since ", moment(line[0].at, now)]));
