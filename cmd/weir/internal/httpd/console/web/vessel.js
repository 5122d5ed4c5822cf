// The bucket as a picture: a vessel with its level, the inflow above, and drops below at the bucket's pace. A valve closes the outflow
// while no call may start.
import { h } from "./dom.js";

const inside = { top: 22, height: 72, left: 19, width: 62 };

/**
 * vessel draws a bucket. level and capacity are jobs; came, left and refused are per second; stopped means that no call may start. label
 * describes the picture for screen readers.
 */
export function vessel({ level, capacity, came = 0, left = 0, refused = 0, stopped = false, label, size = "small" }) {
  const share = capacity > 0 ? Math.min(1, level / capacity) : 0;
  const depth = level > 0 ? Math.max(0.04, share) : 0;
  const full = share >= 1;
  return h("svg", {
    class: `vessel ${size}${stopped ? " stopped" : ""}${full ? " full" : ""}`, viewBox: "0 0 100 130", role: "img", "aria-label": label,
    css: { "--depth": String(depth), "--drip": drip(left) },
  },
  came > 0 && h("rect.pour", { x: 50 - pour(came) / 2, y: 0, width: pour(came), height: inside.top + (1 - depth) * inside.height }),
  h("path.fill", { d: `M${inside.left} ${inside.top} h${inside.width} v${inside.height - 16} a16 16 0 0 1 -16 16 h-${inside.width - 32} a16 16 0 0 1 -16 -16 z` }),
  h("path.wall", { d: "M16 14 v66 a18 18 0 0 0 18 18 h10 v7 m12 0 v-7 h10 a18 18 0 0 0 18 -18 v-66" }),
  refused > 0 && h("g.spill", {}, h("circle", { cx: 9, cy: 34, r: 3.4 }), h("circle", { cx: 91, cy: 46, r: 3.4 })),
  left > 0 && !stopped && h("circle.drop", { cx: 50, cy: 108, r: 4.2 }),
  stopped && h("path.valve", { d: "M38 111 h24" }));
}

// pour returns the width of the inflow, by its order of magnitude.
const pour = (came) => (came > 0 ? Math.min(16, 2.5 + 3 * Math.log10(1 + came * 10)) : 0);

// drip returns the time between two drawn drops: no faster than the eye can follow.
const drip = (left) => (left > 0 ? Math.min(6, Math.max(0.45, 1 / left)).toFixed(2) + "s" : "0s");
