// A new configuration: the user writes or pastes it, has it checked and compared with the one in force, and applies it. Its limits can be
// tried on recorded arrivals before.
import { h } from "./dom.js";
import { change, link } from "./route.js";
import { brief, count, things } from "./format.js";
import { list, post, send } from "./ask.js";
import { ask } from "./dialog.js";
import { announce } from "./announce.js";

const draft = { text: null, verdict: null, changes: null, spent: null, error: null, busy: false };
const trial = { file: null, api: "", rate: "", capacity: "", suggest: false, outcome: null, error: null, busy: false };

/** proposal draws the form for a new configuration. now is the version in force. */
export function proposal(app, now) {
  if (draft.text === null) draft.text = now?.yaml ?? "apis: {}\n";
  return h("section.card", { key: "proposal", "aria-labelledby": "proposal-title" },
    h("div.bar", {}, h("h2", { id: "proposal-title" }, "A new configuration"), h("button", { type: "button", on: { click: () => { drop(); change({ propose: "" }); } } }, "Close")),
    h("p.quiet", {}, "Paste one, or edit the one in force. weir checks and compares it before you apply it. Secrets are in it by reference only: ", h("code", {}, "${env:NAME}")),
    h("div.field", { class: "wide" }, h("label", { for: "proposal-yaml" }, "weir.yaml"),
      h("textarea.yaml", { id: "proposal-yaml", rows: 18, value: draft.text, spellcheck: "false", autocomplete: "off", on: { input: (e) => { Object.assign(draft, { text: e.target.value, verdict: null, changes: null, spent: null, error: null }); app.draw(); } } })),
    h("div.actions", {},
      h("button", { type: "button", disabled: draft.busy, on: { click: () => check(app) } }, draft.busy ? "…" : "Check and compare"),
      draft.changes?.length > 0 && h("button.main", { type: "button", on: { click: () => apply(app, now) } }, `Apply ${things(draft.changes.length, "change")} …`)),
    h("div", { role: "status" },
      draft.error && h("div.told.bad", {}, h("p", {}, draft.error.message)),
      draft.verdict && [problems(draft.verdict.problems, "bad", "It cannot be applied"), problems(draft.verdict.warnings, "warn", "It can be applied, with warnings")],
      draft.changes && (draft.changes.length === 0 ? h("p", {}, "It means the same as the configuration in force.") : h("h3", {}, things(draft.changes.length, "change")))),
    draft.changes?.length > 0 && changes(draft.changes),
    (draft.spent ?? []).map((s) => h("p.quiet", {}, typeof s === "string" ? s : `${s.api}/${s.limit ?? ""}: what was used still counts`)));
}

/** changes lists the differences. */
export function changes(all) {
  if (!all?.length) return h("p", {}, "They mean the same.");
  return h("div.diff", { tabindex: 0, role: "region", "aria-label": "Changes" }, all.map((c) => [
    h("div.quiet", {}, c.path), c.old && h("div.old", {}, "− " + c.old), c.new && h("div.new", {}, "+ " + c.new)]));
}

function problems(all, shade, title) {
  if (!all?.length) return null;
  return h("div.told", { class: shade }, h("p", {}, h("strong", {}, title)), h("ul", {}, all.map((p) => h("li", {}, p.line ? `line ${p.line}: ` : "", p.path ? h("code", {}, p.path) : null, p.path && " ", p.message))));
}

const drop = () => Object.assign(draft, { text: null, verdict: null, changes: null, spent: null, error: null });

async function check(app) {
  Object.assign(draft, { busy: true, error: null, changes: null, verdict: null });
  app.draw();
  const text = draft.text;
  try {
    const verdict = await post("config/check", { yaml: text });
    const told = verdict.ok ? await post("config/apply", { yaml: text, dry_run: true }) : null;
    if (draft.text === text) Object.assign(draft, { verdict, changes: told?.changes ?? (told ? [] : null), spent: told?.spent ?? null });
  } catch (err) {
    draft.error = err;
  }
  draft.busy = false;
  announce(draft.error ? "The configuration could not be checked" : draft.changes ? `It can be applied: ${things(draft.changes.length, "change")}` : "It cannot be applied");
  app.draw();
}

async function apply(app, now) {
  const text = draft.text, n = draft.changes.length;
  const done = await ask({
    title: `Apply ${things(n, "change")}?`, grave: true, does: `Apply ${things(n, "change")}`, state: {},
    view: () => [h("p", {}, `All replicas put it in force at once, as the version after ${now?.version ?? "none"}. Calls already made still count against the limits, and no job is deleted.`), changes(draft.changes)],
    act: () => post("config/apply", { yaml: text, from: "the console" }),
  });
  if (!done) return;
  drop();
  announce("The new configuration is in force");
  app.answers.again("config");
  change({ propose: "" });
}

/** trialOf draws the form that tries a rate and a capacity on recorded arrivals. */
export function trialOf(app) {
  const t = trial, apis = app.snapshot?.status.apis.map((a) => a.api) ?? [];
  const set = (name) => (e) => { t[name] = e.target.type === "checkbox" ? e.target.checked : e.target.value.trim(); t.outcome = t.error = null; app.draw(); };
  return h("section.card", { key: "trial", class: "spaced", "aria-labelledby": "trial-title" },
    h("h2", { id: "trial-title" }, "Try limits on recorded arrivals"),
    h("p.quiet", {}, "Shows what a rate and a capacity would have done, by weir's own schedule. The file is CSV with the columns time, key and optionally cost, or JSON lines. weir calls nothing and changes nothing."),
    h("div.filters", {},
      h("div.field", {}, h("label", { for: "trial-file" }, "Arrivals"), h("input", { id: "trial-file", type: "file", accept: ".csv,.json,.jsonl,.ndjson,text/csv", on: { change: (e) => { t.file = e.target.files[0] ?? null; t.outcome = t.error = null; app.draw(); } } })),
      h("div.field", { class: "narrow" }, h("label", { for: "trial-api" }, "Limits of"), h("select", { id: "trial-api", value: t.api, on: { change: set("api") } }, h("option", { value: "" }, "no api"), apis.map((a) => h("option", { key: a, value: a, selected: a === t.api }, a)))),
      h("div.field", { class: "narrow" }, h("label", { for: "trial-rate" }, "Rate"), h("input", { id: "trial-rate", value: t.rate, placeholder: t.api ? "as it is" : "10/s", on: { input: set("rate") } })),
      h("div.field", { class: "narrow" }, h("label", { for: "trial-capacity" }, "Capacity"), h("input", { id: "trial-capacity", value: t.capacity, inputmode: "numeric", placeholder: t.api ? "as it is" : "500", disabled: t.suggest, on: { input: set("capacity") } })),
      h("label.check", {}, h("input", { type: "checkbox", checked: t.suggest, on: { change: set("suggest") } }), "find the smallest capacity"),
      h("button", { type: "button", disabled: t.busy || !t.file, on: { click: () => attempt(app) } }, t.busy ? "…" : "Try")),
    h("div", { role: "status" }, t.error && h("div.told.bad", {}, h("p", {}, t.error.message)), t.outcome && outcome(t.outcome)));
}

async function attempt(app) {
  const t = trial;
  Object.assign(t, { busy: true, error: null, outcome: null });
  app.draw();
  const asked = Object.fromEntries(Object.entries({ api: t.api, rate: t.rate, capacity: t.suggest ? "" : t.capacity, suggest: t.suggest ? "true" : "" }).filter(([, v]) => v !== ""));
  try {
    t.outcome = await send(link("plan", asked), t.file, "text/csv");
  } catch (err) {
    t.error = err;
  }
  t.busy = false;
  app.draw();
}

const outcome = (o) => h("dl.facts", { "aria-label": "What would have happened" },
  fact("limits", `${o.rate}, a burst of ${o.burst}, capacity ${count(o.capacity)}${o.suggested ? ": the smallest that accepts all" : ""}`),
  fact("arrivals", `${things(o.jobs, "job")} of ${things(o.keys, "key")}`), fact("taken", `${count(o.accepted)}, of which ${count(o.called)} were called`),
  fact("overflowed", o.overflowed > 0 ? h("span.chip.held", {}, count(o.overflowed)) : "none"),
  fact("wait", `half within ${brief(o.wait_ms.p50)}, 95 % within ${brief(o.wait_ms.p95)}, all within ${brief(o.wait_ms.max)}`),
  o.deepest?.depth > 0 && fact("deepest", `${o.deepest.key} with ${things(o.deepest.depth, "job")}`));

const fact = (name, ...what) => [h("dt", {}, name), h("dd", {}, ...what)];

/** verification draws the check of every recorded call against the limits. */
export function verification(app, state) {
  return h("section", { "aria-label": "Proof" },
    h("div.bar.spaced", {}, h("h2", {}, "Checked against the ledger"), h("button", { type: "button", disabled: state.busy, on: { click: () => verify(app, state) } }, state.busy ? "…" : "Verify every recorded call")),
    h("p.quiet", {}, "Checks every window of every limit exactly, by the records of the calls since the limits were last changed."),
    h("div", { role: "status" }, state.busy && h("p.quiet", {}, "Reading the ledger …"), state.error && h("div.told.bad", {}, h("p", {}, state.error.message)),
      state.found && list(state.found, "reports").length === 0 && h("p", {}, "There is no such call yet.")),
    list(state.found, "reports").length > 0 && h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, "Limits and what was found"),
      h("thead", {}, h("tr", {}, ["Api", "Limit", "Key", "Calls", "Worst window", "Allowed", "Verdict"].map((n, i) => h("th", { scope: "col", class: i > 2 && i < 6 ? "n" : "" }, n)))),
      h("tbody", {}, state.found.reports.flatMap((r) => (r.limits ?? []).map((l) => h("tr", { key: r.api + " " + l.limit },
        h("td", { "data-name": "Api" }, r.api), h("td", { "data-name": "Limit" }, l.limit), h("td.whole", { "data-name": "Key" }, l.key || "all"), h("td.n", { "data-name": "Calls" }, count(l.calls)),
        h("td.n", { "data-name": "Worst window" }, amount(l, l.worst), l.beyond > 0 && ` and ${amount(l, l.beyond)} beyond reservations`), h("td.n", { "data-name": "Allowed" }, `${amount(l, l.allowed)} ${l.per}`),
        h("td", { "data-name": "Verdict" }, h("span.chip", { class: l.verdict === "pass" ? "good" : l.verdict === "fail" ? "dead" : "held" }, l.verdict)))))))),
    list(state.found, "reports").map((r) => h("p", { key: r.api }, h("b", {}, r.api), `: ${r.verdict}. ${things(r.calls, "call")} of ${things(r.keys, "key")}`, r.unkeyed > 0 && h("span.chip.dead", {}, `${r.unkeyed} forbidden second calls`))));
}

const amount = (l, n) => (l.unit === "millionths" ? (n / 1e6).toFixed(2) : count(n));

async function verify(app, state) {
  Object.assign(state, { busy: true, error: null, found: null });
  app.draw();
  try {
    state.found = await post("verify");
    announce("The calls have been verified");
  } catch (err) {
    state.error = err.status === 404 ? { message: "The ledger has no call yet." } : err;
  }
  state.busy = false;
  app.draw();
}
