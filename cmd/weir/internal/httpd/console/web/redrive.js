// A redrive submits the jobs of letters again. Before it begins, a plan shows how many letters, what they cost, how long it takes, and how
// many would overflow again.
import { h } from "./dom.js";
import { ask } from "./dialog.js";
import { post } from "./ask.js";
import { go, link } from "./route.js";
import { brief, count, price, things } from "./format.js";
import { since } from "./time.js";
import { asText, asWords } from "./selection.js";
import { progress } from "./transfer.js";
import { changesOf, editOf, editor, isChanged } from "./edit.js";
import { announce } from "./announce.js";

const usualRate = "100/s";
const typed = 1000; // above this number of letters the user must type the number to confirm

/** redriveButton redrives a selection. */
export const redriveButton = (app, picked, total) => h("button.main", { type: "button", on: { click: () => redrive(app, picked, `Redrive ${asText(picked)}`) } }, `Redrive ${things(total, "letter")} …`);

/** redriveOne redrives one letter. */
export const redriveOne = (app, l) => h("button.main", { type: "button", on: { click: () => redrive(app, { seqs: [l.seq] }, `Redrive letter ${l.seq}`) } }, "Redrive …");

const skips = {
  unknown: "with an unknown outcome: tick the box below to redrive them too; the API may bill them twice",
  cancelled: "that were cancelled: choose the reason cancelled to redrive them",
  deadline: "whose deadline has passed: tick the box below to redrive them without a deadline",
  resubmitted: "whose producer has submitted the job more than once, and weir took it: purge them",
  same_id: "whose id another job has now: redrive that one first",
  no_body: "whose body was too large to keep: their producer must submit them again",
  no_api: "of APIs that are not configured: configure the API again, or purge them",
  no_key: "without a key: their producer must submit them again",
  not_a_letter: "that weir did not write",
};

/** redriveEdited redrives one letter with another body or other headers. text is its present body; null if that is not text. */
export const redriveEdited = (app, l, text) => h("button", { type: "button", on: { click: () => redrive(app, { seqs: [l.seq] }, `Edit and redrive letter ${l.seq}`, editOf(l, text)) } }, "Edit and redrive …");

// edit is what a user changes of one letter; null if the letters are redriven as they are.
async function redrive(app, picked, title, edit = null) {
  const state = { rate: usualRate, include_unknown: false, drop_deadline: false, priority: "low", why: "", edit, plan: null, error: null, count: "", asked: 0 };
  let begun = null;
  const wants = () => ({ ...asWords(picked), rate: state.rate, include_unknown: state.include_unknown, drop_deadline: state.drop_deadline, priority: state.priority });
  const order = () => ({ ...wants(), ...(state.why ? { why: state.why } : {}), ...(edit ? { edit: changesOf(edit) } : {}) });
  const think = async (draw) => {
    const turn = ++state.asked;
    state.plan = state.error = null;
    draw();
    try {
      const plan = await post("dead/redrive/plan", wants());
      if (turn === state.asked) state.plan = plan;
    } catch (err) {
      if (turn === state.asked) state.error = err;
    }
    draw();
  };
  let first = true;
  const done = await ask({
    title, state,
    does: (s) => (s.plan ? `Redrive ${things(s.plan.letters, "letter")}` : "Redrive"),
    ready: (s) => (!edit || isChanged(edit)) && s.plan !== null && s.plan.letters + s.plan.settled > 0 && (s.plan.letters <= typed || s.count.replaceAll(",", "") === String(s.plan.letters)),
    view: (s, draw) => {
      if (first) {
        first = false;
        queueMicrotask(() => think(draw));
      }
      return [
        edit && editor(edit, draw),
        s.error ? h("div.told.bad", { role: "alert" }, h("p", {}, s.error.message)) : s.plan ? planned(app, s.plan) : h("p.quiet", { role: "status" }, "Looking at the letters …"),
        h("div.filters", {},
          h("div.field", { class: "narrow" }, h("label", { for: "plan-rate" }, "At most"), h("input", { id: "plan-rate", value: s.rate, pattern: "[0-9]+/[0-9a-z]+", on: { change: (e) => { s.rate = e.target.value.trim() || usualRate; think(draw); } } })),
          h("div.field", { class: "narrow" }, h("label", { for: "plan-priority" }, "Priority"), h("select", { id: "plan-priority", on: { change: (e) => { s.priority = e.target.value; } } },
            ["low", "normal", "high"].map((name) => h("option", { value: name, selected: s.priority === name }, name)))),
          s.plan?.roomy_rate && s.plan.roomy_rate !== s.rate && h("button", { type: "button", on: { click: () => { s.rate = s.plan.roomy_rate; think(draw); } } }, `Use ${s.plan.roomy_rate}: none should overflow`),
          h("div.field", {}, h("label", { for: "plan-why" }, "Why (others read it)"), h("input", { id: "plan-why", value: s.why, maxlength: 200, on: { input: (e) => { s.why = e.target.value; } } }))),
        (s.plan?.skipped?.unknown > 0 || s.include_unknown || edit?.maybeCalled) && h("label.check", {}, h("input", { type: "checkbox", checked: s.include_unknown, on: { change: (e) => { s.include_unknown = e.target.checked; think(draw); } } }),
          "also those with an unknown outcome: the API may have processed their calls, and may bill them twice"),
        (s.plan?.skipped?.deadline > 0 || s.drop_deadline) && h("label.check", {}, h("input", { type: "checkbox", checked: s.drop_deadline, on: { change: (e) => { s.drop_deadline = e.target.checked; think(draw); } } }), "also those whose deadline has passed, without a deadline"),
        s.plan && s.plan.letters > typed && h("div.field", {}, h("label", { for: "plan-count" }, `Type ${s.plan.letters} to confirm`), h("input", { id: "plan-count", inputmode: "numeric", autocomplete: "off", value: s.count, on: { input: (e) => { s.count = e.target.value.trim(); draw(); } } })),
      ];
    },
    act: async () => { begun = await post("redrives", order()); },
  });
  if (!done) return;
  announce("The redrive has begun");
  app.answers.again("dead");
  go(link("/redrives", { id: begun.name }));
}

function planned(app, p) {
  const row = (name, ...what) => [h("dt", {}, name), h("dd", { "data-plan": name }, ...what)];
  return h("dl.facts.plan", { "aria-label": "The plan" },
    row("letters", p.letters > 0 ? `${things(p.letters, "letter")} of ${things(p.keys, "key")}` : "none", p.oldest && h("span.quiet", {}, ", the oldest ", since(p.oldest, app.now()))),
    row("cost", h("b", {}, price(p.cost)), p.billed_before > 0 && `; ${p.billed_before} of them were already billed and would cost ${price(p.billed_before_cost)} again`),
    p.maybe_billed > 0 && row("warning", h("span.chip.unknown", {}, `the calls of ${p.maybe_billed} may already be billed: the API may bill them twice`)),
    row("time", brief(p.duration_ms), h("span.quiet", {}, p.slowest ? `: ${p.slowest}` : "")),
    row("overflow", p.overflow > 0 ? h("span.chip.held", {}, `about ${p.overflow} overflow again at ${p.rate}`) : "none should overflow again"),
    p.settled > 0 && row("settled", `${p.settled} whose job was submitted again since: only the letter is deleted`),
    Object.entries(p.skipped ?? {}).map(([why, n]) => row("left alone", `${n} ${skips[why] ?? why}`)));
}

/** purgeButton deletes a selection for good. Without a filter there is no such button. */
export function purgeButton(app, picked, total) {
  if (Object.keys(picked).length === 0) return null;
  return h("button.danger", { type: "button", on: { click: () => purge(app, picked, total, `Purge ${asText(picked)}?`) } }, "Purge …");
}

/** purgeOne deletes one letter for good. */
export const purgeOne = (app, l) => h("button.danger", { type: "button", on: { click: () => purge(app, { seqs: [l.seq] }, 1, `Purge letter ${l.seq}?`, () => go("/letters")) } }, "Purge …");

async function purge(app, picked, total, title, then) {
  const state = { plan: null, error: null, count: "" };
  let first = true;
  const done = await ask({
    title, state, grave: true, does: (s) => `Delete ${things(s.plan?.letters ?? total, "letter")} for good`,
    ready: (s) => s.plan !== null && s.plan.letters > 0 && (s.plan.letters <= typed || s.count.replaceAll(",", "") === String(s.plan.letters)),
    view: (s, draw) => {
      s.draw = draw;
      if (first) {
        first = false;
        post("dead/purge", { ...asWords(picked), dry_run: true }).then((plan) => { s.plan = plan; }, (err) => { s.error = err; }).finally(draw);
      }
      return [
        s.error ? h("div.told.bad", { role: "alert" }, h("p", {}, s.error.message)) : s.plan ? h("p", {}, h("b", {}, things(s.plan.letters, "letter")), " and their jobs will be deleted, with the bodies. Only a file that you exported before can bring them back.") : h("p.quiet", { role: "status" }, "Counting …"),
        s.gone !== undefined && h("div", {}, progress(s.gone, s.plan.letters, "letters deleted"), h("p.quiet.n", {}, `about ${count(s.gone)} of ${things(s.plan.letters, "letter")} deleted`)),
        s.plan && s.plan.letters > typed && h("div.field", {}, h("label", { for: "purge-count" }, `Type ${s.plan.letters} to confirm`), h("input", { id: "purge-count", inputmode: "numeric", autocomplete: "off", value: s.count, on: { input: (e) => { s.count = e.target.value.trim(); draw(); } } })),
      ];
    },
    act: async (s) => {
      const before = app.snapshot?.status.letters_all ?? 0, n = s.plan.letters;
      const beat = n > typed && setInterval(() => { // weir answers when all are deleted; until then the snapshots say how many are left
        s.gone = Math.max(0, Math.min(n, before - (app.newest?.status.letters_all ?? before)));
        s.draw();
      }, 500);
      try {
        await post("dead/purge", asWords(picked));
      } finally {
        clearInterval(beat);
      }
    },
  });
  if (!done) return;
  announce("The letters are deleted");
  app.answers.again("dead");
  then?.();
}
