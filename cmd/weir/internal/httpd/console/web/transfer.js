// Export and import of letters; and inquiries about letters with the reason unknown, one by one.
import { h } from "./dom.js";
import { count, things } from "./format.js";
import { get, list, post, send } from "./ask.js";
import { ask } from "./dialog.js";
import { asQuery, asText } from "./selection.js";
import { announce } from "./announce.js";

/** exportLink downloads the letters of a selection as a file, one a line. */
export const exportLink = (picked) => h("a.button", { key: "export", href: "/api/v1/dead/export?" + asQuery(picked), download: "", "aria-label": `Export ${asText(picked)} with their bodies` , title: "With bodies; an event records that you exported them" }, "Export");

/** importButton stores exported letters. */
export const importButton = (app) => h("button", { key: "import", type: "button", on: { click: () => bring(app) } }, "Import …");

async function bring(app) {
  let told = null;
  const done = await ask({
    title: "Import dead letters?", state: { file: null, look: null, error: null }, does: (s) => (s.look ? `Import ${things(s.look.letters, "letter")}` : "Import"), ready: (s) => s.look !== null,
    view: (s, draw) => [
      h("p", {}, "weir stores them as letters, never as jobs: nothing is called. Letters that are already stored are skipped."),
      h("div.field", {}, h("label", { for: "import-file" }, "A file written by an export"), h("input", { id: "import-file", type: "file", accept: ".jsonl,.ndjson,.json", on: { change: (e) => look(s, e.target.files[0] ?? null, draw) } })),
      h("div", { role: "status" }, s.error ? h("div.told.bad", {}, h("p", {}, s.error.message)) : s.look ? h("p", {}, `${things(s.look.letters, "letter")} can be imported.`) : s.file && h("p.quiet", {}, "Reading the file …")),
    ],
    act: async (s) => { told = await send("dead/import", s.file, "application/jsonl"); },
  });
  if (!done) return;
  announce(`${things(told.stored, "letter")} imported, ${told.known_already} were already stored`);
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

const most = 1000; // letters in one run of inquiries

/** reconcileButton asks APIs about the calls of letters with the reason unknown. total is the number of letters. */
export function reconcileButton(app, picked, total) {
  if (picked.reason !== "unknown") return null;
  return h("button", { key: "reconcile", type: "button", on: { click: () => reconcile(app, picked, total) } }, "Ask the api …");
}

/** reconcileOne is the same for one letter. */
export const reconcileOne = (app, l) => (l.reason === "unknown" || l.reason === "cancelled" && l.has_operation) && h("button", { key: "reconcile", type: "button", on: { click: () => reconcile(app, { seqs: [l.seq] }, 1) } }, "Ask the api …");

async function reconcile(app, picked, total) {
  const n = Math.min(total, most), state = { asked: 0, ends: {}, why: "", draw: () => {}, stopped: false };
  const done = await ask({
    title: n === 1 ? "Ask the api what became of this call?" : `Ask about ${things(n, "letter")}?`, state, does: n === 1 ? "Ask" : `Ask about ${things(n, "letter")}`,
    view: (s, draw) => {
      s.draw = draw;
      return [
        h("p", {}, "weir sends the API's inquiry, within its limits. A processed call gets its result, a job that was not processed is submitted again, and all other letters stay."),
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

/** progress draws a progress bar. */
export const progress = (at, all, label) => h("div.progress", { role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": all, "aria-valuenow": at }, h("span.done", { css: { "--share": String(all > 0 ? Math.min(1, at / all) : 0) } }));
