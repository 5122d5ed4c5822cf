// What a page says where it has nothing to show: that it waits, that something failed and what to do, or how to begin.
import { h } from "./dom.js";
import { vessel } from "./vessel.js";

/** waits says that an answer is still to come. */
export const waits = (what) => h("p.quiet", { role: "status" }, `Asking for ${what} …`);

/** failed says what went wrong. */
export const failed = (err) => h("div.told.bad", { role: "alert" }, h("p", {}, err.message));

/** empty teaches: title, then what to do. */
export const empty = (title, ...how) => h("div.empty", {}, vessel({ level: 0, capacity: 1, label: "an empty bucket", size: "small" }), h("h2", {}, title), how.map((p) => h("p", {}, p)));

/** command tells how to ask the same in a terminal. */
export const command = (text) => h("p.command", {}, "In a terminal: ", h("code", {}, text),
  h("button", { type: "button", "aria-label": `Copy: ${text}`, on: { click: (event) => copy(event.currentTarget, text) } }, "Copy"));

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.dataset.done = "yes";
    button.setAttribute("aria-label", "Copied");
  } catch {
    button.setAttribute("aria-label", "This browser lets no page copy");
  }
}

/** quoted writes a word as a shell takes it. */
export const quoted = (word) => (/^[\w.@:/+-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");
