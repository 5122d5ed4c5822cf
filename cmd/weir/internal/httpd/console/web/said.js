// Texts of a page without data: it waits, something failed and what to do, or how to begin.
import { h } from "./dom.js";
import { vessel } from "./vessel.js";

/** waits says that the page waits for an answer. */
export const waits = (what) => h("p.quiet", { role: "status" }, `Asking for ${what} …`);

/** failed shows an error. */
export const failed = (err) => h("div.told.bad", { role: "alert" }, h("p", {}, err.message));

/** empty explains an empty page: a title, then what to do. */
export const empty = (title, ...how) => h("div.empty", {}, vessel({ level: 0, capacity: 1, label: "an empty bucket", size: "small" }), h("h2", {}, title), how.map((p) => h("p", {}, p)));

/** command shows the command for the same question in a terminal. */
export const command = (text) => h("p.command", {}, "In a terminal: ", h("code", {}, text),
  h("button", { type: "button", "aria-label": `Copy: ${text}`, on: { click: (event) => copy(event.currentTarget, text) } }, "Copy"));

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.dataset.done = "yes";
    button.setAttribute("aria-label", "Copied");
  } catch {
    button.setAttribute("aria-label", "This browser does not allow copying");
  }
}

/** quoted quotes a word for a shell. */
export const quoted = (word) => (/^[\w.@:/+-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");
