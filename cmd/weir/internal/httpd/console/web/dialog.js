// A dialogue asks for confirmation before a change, and shows the figures of the change.
import { h, patch } from "./dom.js";

/**
 * ask shows a dialogue and returns when it is closed: true if the action was done. view(state, draw) describes the content between
 * the title and the buttons. act(state) does the action; if it fails, the dialogue shows the error and stays open.
 */
export function ask({ title, view, act, does, grave = false, state = {}, ready = () => true }) {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    const before = document.activeElement;
    let busy = false, failed = null, done = false;
    dialog.setAttribute("aria-labelledby", "dialog-title");
    const draw = () => patch(dialog, [h("form", { on: { submit } },
      h("h2", { id: "dialog-title" }, title),
      view(state, draw),
      failed && h("div.told.bad", { role: "alert" }, h("p", {}, failed)),
      h("div.actions", {},
        h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"),
        h("button.main", { type: "submit", class: grave ? "danger" : "", disabled: busy || !ready(state) }, busy ? "…" : typeof does === "function" ? does(state) : does)))]);
    async function submit(event) {
      event.preventDefault();
      if (busy || !ready(state)) return;
      busy = true;
      failed = null;
      draw();
      try {
        await act(state);
        done = true;
        dialog.close();
      } catch (err) {
        failed = err.message;
      }
      busy = false;
      if (!done) draw();
    }
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before?.isConnected) before.focus();
      resolve(done);
    });
    document.body.append(dialog);
    draw();
    dialog.showModal();
  });
}
