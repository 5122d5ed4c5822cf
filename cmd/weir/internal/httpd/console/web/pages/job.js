import { h } from "../dom.js";
import { go, link } from "../route.js";
import { brief, bytes, count, price } from "../format.js";
import { exact, moment, said } from "../time.js";
import { empty, failed, waits, command, quoted } from "../said.js";
import { shade, short, waiting } from "../wait.js";
import { timeBar } from "../timebar.js";
import { cancelButton } from "../cancel.js";
import { get } from "../ask.js";
import { body as shownBody } from "../payload.js";

// read has the bodies of results that the user has asked for, of the job on the page, by the number of the result.
const read = { id: "", bodies: new Map() };
const mostBody = 64 << 10; // bytes of a result that the page shows

/** job finds a job by its id and shows what happened to it. */
export const job = {
  path: "/job", title: (query) => (query.get("id") ? "Job " + query.get("id") : "Find a job"),
  view(app, query) {
    const id = query.get("id") ?? "";
    if (read.id !== id) Object.assign(read, { id, bodies: new Map() });
    if (id === "") return [h("h1", {}, "Find a job"), form(""), empty("Where is a job, or what became of it?", "Give its id: the one that its producer set (Nats-Msg-Id), or the one in its receipt. weir looks through queues, ledger, results, letters and events.")];
    const asked = app.answers.use("jobs/" + encodeURIComponent(id), 2000), t = asked.value;
    const title = h("h1", {}, h("span.quiet", {}, "Job "), id);
    const terminal = command(`weir job ${quoted(id)}`);
    if (!t) {
      if (asked.error?.status === 404) return [title, form(id), empty("No trace of this id", asked.error.message), terminal];
      return [title, form(id), asked.error ? failed(asked.error) : waits("the job, in queues, ledger, results, letters and events")];
    }
    return [
      title,
      (t.silent ?? []).map((s) => h("div.told.warn", {}, h("p", {}, s))),
      t.jobs.map((j) => story(app, j)),
      t.jobs.length === 0 && empty("No trace of this id", "Its traces may be too old, or the id is wrong."),
      h("details", { "aria-label": "Where weir has looked" }, h("summary", {}, "Where weir has looked"), h("ul", {}, (t.looked ?? []).map((l) => h("li", {}, h("code", {}, l.stream), `: ${count(l.messages)} messages`, l.all ? ", all of them" : l.back && [", back to ", moment(l.back)])))),
      terminal,
    ];
  },
};

function form(id) {
  return h("form.filters", { role: "search", "aria-label": "A job by its id", on: { submit: (event) => {
    event.preventDefault();
    const wanted = event.currentTarget.querySelector("input").value.trim();
    if (wanted) go(link("/job", { id: wanted }));
  } } }, h("div.field", {}, h("label", { for: "job-id" }, "Job id"), h("input", { id: "job-id", value: id, autocomplete: "off", spellcheck: "false" })), h("button.main", { type: "submit" }, "Find"));
}

const states = { queued: ["waits in its bucket", "calm"], done: ["done", "good"], dead: ["dead letter", "dead"], gone: ["its end is unknown", "unknown"] };

function story(app, j) {
  const [text, colour] = states[j.state] ?? [j.state, "calm"];
  return h("section.card.spaced", { key: j.api + "\n" + j.key },
    h("div.bar", {}, h("h2", {}, h("a", { href: link("/bucket", { api: j.api, key: j.key }) }, `${j.api}/${j.key}`), " ", h("span.chip", { class: colour, "data-state": j.state }, text)),
      app.operator() && j.state === "queued" && j.queue?.state && j.queue.state.phase !== "calling" && cancelButton(app, j.api, j.job)),
    h("p", {}, j.letter && [h("a", { href: link("/letter", { seq: j.letter.seq }) }, `Letter ${j.letter.seq}`), `: ${j.letter.reason}. `], `Spent ${price(j.spent)}`, Number(j.in_doubt) > 0 && `, ${price(j.in_doubt)} in doubt`),
    j.queue?.state?.priority && h("p", { "data-field": "priority" }, "Priority: ", j.queue.state.priority),
    j.callback && h("p", { "data-field": "callback", "data-state": j.callback.state }, "Callback: ", said(j.callback.text)),
    timeBar(j, app.now()),
    h("ol.timeline", {}, steps(app, j)),
    j.result && answer(app, j));
}

function steps(app, j) {
  const now = app.now();
  let before = null;
  const all = j.timeline.map((s) => {
    const gap = before === null ? "" : (s.what === "call" ? "waited " : "+") + brief(Date.parse(s.at) - before);
    before = Date.parse(s.ended ?? s.at);
    return h("li", { key: `${s.stream}${s.seq}${s.what}`, class: shadeOf(s) },
      h("div", {}, exact(s.at), gap && h("span.gap", {}, gap)),
      h("p", {}, h("span.chip", { class: shadeOf(s) || "calm" }, titles[s.what] ?? s.what), " ", said(s.text)));
  });
  const q = j.queue;
  if (j.state === "queued" && q) {
    const state = q.state;
    all.push(h("li.later", { key: "now" }, h("div", {}, h("time", {}, "now")),
      h("p", {}, state ? (state.phase === "calling" ? h("b", {}, `call ${state.calls} runs`) : state.phase === "polling" ? h("b", {}, "the API goes on working; weir polls it") : h("b", {}, `waits at place ${state.position} of ${q.depth}`)) : h("b", {}, `waits in a bucket of ${q.depth}`), " ", q.waits && h("span.chip", { class: shade(q.waits) }, short(q.waits))),
      q.waits && h("p.quiet", {}, "The bucket's next job waits for ", waiting(q.waits))));
    if (state?.eta) all.push(h("li.later", { key: "eta" }, h("div", {}, exact(state.eta), h("span.gap", {}, "in " + brief(Date.parse(state.eta) - now))), h("p", {}, "to be called")));
  }
  return all;
}

// answer shows the result of a job that is done. Its body is asked for by an operator, and by a click: it may be confidential.
function answer(app, j) {
  const r = j.result, found = read.bodies.get(r.seq);
  return h("section", { "aria-label": "Result" }, h("h3", {}, "The API's answer ", h("span.chip", {}, String(r.status)), h("span.quiet", {}, ` ${bytes(r.size)}${r.content_type ? " of " + r.content_type : ""}`)),
    found?.value ? shownBody(found.value.body_base64 ?? found.value.body, found.value.body_base64 ? "base64" : "text", r.content_type, `result-${r.seq}`, `The API's answer to ${j.api}/${j.key}`)
      : r.size > mostBody ? command(`weir results get ${quoted(j.job)} --api ${quoted(j.api)} --key ${quoted(j.key)}`)
        : r.size === 0 ? h("p.quiet", {}, "It is empty.")
          : app.operator() ? [found?.error && failed(found.error), h("button", { type: "button", disabled: Boolean(found?.asking), on: { click: () => show(app, j) } }, found?.asking ? "…" : "Show the answer")]
            : h("p.quiet", {}, "Its body may be confidential: this needs the role operator."));
}

async function show(app, j) {
  const bodies = read.bodies, seq = j.result.seq;
  bodies.set(seq, { asking: true });
  app.draw();
  try {
    bodies.set(seq, { value: await get(link(`results/${encodeURIComponent(j.api)}/${encodeURIComponent(j.job)}`, { key: j.key })) });
  } catch (error) {
    bodies.set(seq, { error });
  }
  app.draw();
}

const titles = { accepted: "accepted", call: "called", operation: "operation", inquiry: "asked", reused: "not called", result: "answered", letter: "dead letter", event: "told" };

function shadeOf(s) {
  if (s.what === "letter") return "dead";
  if (s.what === "result") return "good";
  if (s.what === "call" || s.what === "operation") return ["done", "submitted"].includes(s.outcome) ? "good" : ["retry", "pushback", "denied"].includes(s.outcome) ? "held" : "dead";
  return "";
}
