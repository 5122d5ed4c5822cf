// Letters that go out of weir whole and come in again; and letters unknown, about which their apis are asked one by one.
import { h } from "./dom.js";
import { count, things } from "./format.js";
import { get, list, post, send } from "./ask.js";
import { ask } from "./dialog.js";
import { asQuery, asText } from "./selection.js";
import { announce } from "./announce.js";

/** exportLink leads to the letters of a selection as a file, one a line. */
export const exportLink = (picked) => h("a.button", { key: "export", href: "/api/v1/dead/export?" + asQuery(picked), download: "", "aria-label": `Export ${asText(picked)} with their bodies` , title: "Bodies and all: that you took them is told as an event" }, "Export");

/** importButton stores letters that were exported. */
export const importButton = (app) => h("button", { key: "import", type: "button", on: { click: () => bring(app) } }, "Import …");

async function bring(app) {
  let told = null;
  const done = await ask({
    title: "Import dead letters?", state: { file: null, look: null, error: null }, does: (s) => (s.look ? `Import ${things(s.look.letters, "letter")}` : "Import"), ready: (s) => s.look !== null,
    view: (s, draw) => [
      h("p", {}, "They are stored as letters, never as jobs: nothing is called. Those that are there already are left out."),
      h("div.field", {}, h("label", { for: "import-file" }, "A file that an export has written"), h("input", { id: "import-file", type: "file", accept: ".jsonl,.ndjson,.json", on: { change: (e) => look(s, e.target.files[0] ?? null, draw) } })),
      h("div", { role: "status" }, s.error ? h("div.told.bad", {}, h("p", {}, s.error.message)) : s.look ? h("p", {}, `${things(s.look.letters, "letter")} can be imported.`) : s.file && h("p.quiet", {}, "Reading it …")),
    ],
    act: async (s) => { told = await send("dead/import", s.file, "application/jsonl"); },
  });
  if (!done) return;
  announce(`${things(told.stored, "letter")} imported, ${told.known_already} were there`);
  app.answers.again("dead");
}

async function look(s, file, draw) {
  Object.assign(s, { file, look: null, error: null });
  draw();
  if (!file) return;
  try {
    const found = await send("dead/import?dry_run=true", file, "application/jsonl");
    if (s.file === file) s.look = found;
  } catch (err) {
    if (s.file === file) s.error = err;
  }
  draw();
}

const most = 1000; // letters that are asked about at a time

/** reconcileButton asks apis what became of the calls of letters unknown. total is how many there are. */
export function reconcileButton(app, picked, total) {
  if (picked.reason !== "unknown") return null;
  return h("button", { key: "reconcile", type: "button", on: { click: () => reconcile(app, picked, total) } }, "Ask the api …");
}

/** reconcileOne is the same of one letter. */
export const reconcileOne = (app, l) => l.reason === "unknown" && h("button", { key: "reconcile", type: "button", on: { click: () => reconcile(app, { seqs: [l.seq] }, 1) } }, "Ask the api …");

async function reconcile(app, picked, total) {
  const n = Math.min(total, most), state = { asked: 0, ends: {}, why: "", draw: () => {}, stopped: false };
  const done = await ask({
    title: n === 1 ? "Ask the api what became of this call?" : `Ask about ${things(n, "letter")}?`, state, does: n === 1 ? "Ask" : `Ask about ${things(n, "letter")}`,
    view: (s, draw) => {
      s.draw = draw;
      return [
        h("p", {}, "The api is asked by its inquiry, within its limits. What was processed gets its result, what was not is handed in again, and the rest stays."),
        total > n && h("p.quiet", {}, `The newest ${count(n)} of ${count(total)}.`),
        s.asked > 0 && h("div", { role: "status" }, progress(s.asked, n, "letters asked about"), h("p.n", {}, `${count(s.asked)} of ${count(n)}: `, Object.entries(s.ends).map(([end, k]) => `${k} ${end}`).join(", ")), s.why && h("p.quiet", {}, s.why)),
      ];
    },
    act: async (s) => {
      const seqs = picked.seqs ?? list(await get("dead?" + asQuery(picked, { limit: n })), "letters").map((l) => l.seq);
      for (const seq of seqs) {
        const told = await post(`dead/${seq}/reconcile`);
        s.asked++;
        s.ends[told.end] = (s.ends[told.end] ?? 0) + 1;
        if (told.why) s.why = `letter ${seq}: ${told.why}`;
        s.draw();
      }
    },
  });
  app.answers.again("dead");
  if (done) announce(`Asked about ${things(state.asked, "letter")}: ` + Object.entries(state.ends).map(([end, k]) => `${k} ${end}`).join(", "));
}

/** progress draws how far something is. */
export const progress = (at, all, label) => h("div.progress", { role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": all, "aria-valuenow": at }, h("span.done", { css: { "--share": String(all > 0 ? Math.min(1, at / all) : 0) } }));
