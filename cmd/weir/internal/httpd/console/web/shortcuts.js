// Keyboard shortcuts, and the dialogue that lists them.
import { h, patch } from "./dom.js";
import { turn } from "./theme.js";
import { pages, titleOf } from "./pages/index.js";

/** shortcuts handles keys pressed outside of fields. */
export function shortcuts(app, go) {
  let pending = 0; // the time until which a letter after g opens a page
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const at = event.target;
    if (at instanceof HTMLElement && (at.isContentEditable || /^(input|textarea|select)$/i.test(at.tagName))) {
      if (event.key === "Escape") at.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (!app.session || app.session.role === "anybody") return;
    const done = event.timeStamp < pending ? lead(event.key, go) : press(event.key, app);
    pending = event.key === "g" && event.timeStamp >= pending ? event.timeStamp + 1500 : 0;
    if (done) event.preventDefault();
  });
}

function lead(key, go) {
  const page = pages.find((p) => p.key === key);
  if (page) go(page.path);
  return Boolean(page);
}

function press(key, app) {
  switch (key) {
    case "/": document.getElementById("search")?.focus(); return true;
    case "?": help(); return true;
    case "t": turn(); app.draw(); return true;
    case "f": app.freeze(); return true;
    case "Escape":
      if (!app.menu) return false;
      app.open(false);
      document.querySelector(".menu").focus();
      return true;
    case "j": case "k": return step(key === "j" ? 1 : -1);
  }
  return false;
}

// step moves the focus to the next or the previous row's link.
function step(by) {
  const links = [...document.querySelectorAll("main tbody tr a[href], main .cards .card > h2 a[href]")].filter((a, i, all) => i === 0 || a.closest("tr,.card") !== all[i - 1].closest("tr,.card"));
  if (links.length === 0) return false;
  const row = document.activeElement?.closest("tr,.card");
  const at = links.findIndex((a) => a.closest("tr,.card") === row);
  const next = links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

const keys = [
  ["/", "find a job by its id"], ["j  k", "next and previous row"], ["Enter", "open the row"], ["f", "freeze or resume the numbers"],
  ["t", "dark, light, or the system's theme"], ["Esc", "leave a field or a dialogue"], ["?", "this list"],
];

/** help shows the shortcuts. */
export function help() {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "keys-title");
  patch(dialog, [h("h2", { id: "keys-title" }, "Keyboard"),
    h("dl.facts", {}, keys.map(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)]),
      pages.filter((p) => p.key).map((p) => [h("dt", {}, h("kbd", {}, "g"), " ", h("kbd", {}, p.key)), h("dd", {}, p.nav ?? titleOf(p))])),
    h("div.actions", {}, h("button.main", { type: "button", autofocus: true, on: { click: () => dialog.close() } }, "Close"))]);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
