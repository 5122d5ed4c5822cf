import { h } from "../dom.js";
import { link } from "../route.js";
import { bytes } from "../format.js";
import { exact, said, since } from "../time.js";
import { post } from "../ask.js";
import { explanation, shadeOf } from "../cause.js";
import { empty, failed, waits, command } from "../said.js";
import { body as shownBody } from "../payload.js";
import { redriveOne, redriveEdited, purgeOne } from "../redrive.js";
import { reconcileOne } from "../transfer.js";
import { announce } from "../announce.js";

// revealed has the payloads that the user has revealed, of the letter on the page.
const revealed = { seq: "", value: null, error: null, asking: false };

/** letter is the page of one dead letter. Its payload is hidden until the user reveals it, which an event records. */
export const letter = {
  path: "/letter", title: (query) => "Letter " + query.get("seq"),
  view(app, query) {
    const seq = query.get("seq") ?? "", title = h("h1", {}, h("a", { href: "/letters" }, "Dead letters"), " / ", seq);
    if (revealed.seq !== seq) Object.assign(revealed, { seq, value: null, error: null, asking: false });
    const asked = app.answers.use("dead/" + encodeURIComponent(seq)), l = asked.value;
    if (!l) {
      if (asked.error?.status === 404) return [title, empty("This letter is gone", "It was redriven, purged or too old, or it never existed.", h("a", { href: "/letters" }, "All letters"))];
      return [title, asked.error ? failed(asked.error) : waits("the letter")];
    }
    const settled = isSettled(app, l);
    return [
      h("div.bar", {}, title, app.operator() && h("div.actions", {}, !settled && redriveOne(app, l), revealed.value && redriveEdited(app, l, revealed.value.body_base64 ? null : revealed.value.body ?? ""), reconcileOne(app, l), purgeOne(app, l))),
      h("div.told.bad", {}, h("p", {}, h("span.chip", { class: shadeOf(l.reason) }, l.reason), " ", said(l.detail)), h("p.quiet", {}, settled ? "Its producer has submitted the job again since, and it is done. Nothing is left to redrive: purge the letter." : explanation(l))),
      h("div.split", {},
        h("section.card", { "aria-label": "What it was" }, h("dl.facts", {},
          fact("died", [exact(l.stored), h("span.quiet", {}, " (", since(l.stored, app.now()), ")")]),
          fact("api", l.api ? h("a", { href: link("/buckets", { api: l.api }) }, l.api) : l.asked_api ? `${l.asked_api}, which was not configured` : "–"),
          fact("key", l.key ? h("a", { href: link("/bucket", { api: l.api, key: l.key }) }, l.key) : "–"),
          fact("job", l.job ? [h("a", { href: link("/job", { id: l.job }) }, h("code", {}, l.job)), " its whole history"] : "–"),
          fact("status", l.status ? String(l.status) : "none: the API gave no answer, or was not called"),
          fact("billed", h("span.chip", { class: l.billed === "no" ? "good" : l.billed === "unknown" ? "unknown" : "held" }, l.billed)),
          fact("attempts", String(l.attempts)), fact("redrives", String(l.redrives)),
          l.refusals > 1 && fact("refusals", `${l.refusals} when the letter was written: its producer keeps retrying`)),
        l.call && lastCall(l.call)),
        h("section.card", { "aria-label": "Headers of the job" }, h("h2", {}, "Headers"), headers(revealed.value?.headers ?? l.headers))),
      l.has_operation && operation(revealed.value?.operation),
      payload(app, l),
      command(`weir dead show ${seq}`),
    ];
  },
};

// isSettled reports whether a refused job was accepted later and is done: its letter is left over.
function isSettled(app, l) {
  if (l.reason !== "overflow" || !l.job || !l.api) return false;
  const story = app.answers.use(`jobs/${encodeURIComponent(l.job)}?api=${encodeURIComponent(l.api)}&key=${encodeURIComponent(l.key)}`, 10000).value;
  return Boolean(story?.jobs?.some((job) => job.state === "done"));
}

const fact = (name, ...what) => [h("dt", {}, name), h("dd", {}, ...what)];

function lastCall(c) {
  return [h("h2", { class: "spaced" }, "Its last call"), h("dl.facts", {},
    c.started_at && fact("started", exact(c.started_at)), c.wrote_at && fact("request written", exact(c.wrote_at)),
    c.sent_bytes !== undefined && fact("sent", bytes(c.sent_bytes)), c.connection && fact("connection", c.connection),
    c.ended_at && fact("ended", exact(c.ended_at)), c.cut_by && fact("cut off by", c.cut_by))];
}

function headers(all) {
  const names = Object.keys(all ?? {}).sort();
  if (names.length === 0) return h("p.quiet", {}, "The job had none.");
  return h("dl.facts.headers", {}, names.flatMap((name) => all[name].length > 0 ? all[name].map((value) => fact(h("code", {}, name), h("code", {}, value))) : fact(h("code", {}, name), h("span.quiet", {}, "hidden"))));
}

// operation shows where the API is asked about the operation that the last call began. The address may be confidential.
function operation(address) {
  return h("p", { "data-field": "operation" }, "The API's operation: ", address ? h("code", {}, address) : h("span.quiet", {}, "its address is shown with the body"));
}

function payload(app, l) {
  const found = revealed.value;
  return [
    h("h2", {}, "Body", h("span.quiet", {}, l.body_left_out ? " not kept: it was too large, or was lost with the store of its queue" : ` ${bytes(l.size)}`)),
    found ? shownBody(found.body_base64 ?? found.body, found.body_base64 ? "base64" : found.encoding, null, `letter-${l.seq}-body`, "Body")
      : h("div.card", {}, h("p", {}, "Bodies and headers may be confidential. They are hidden until you ask; then an event records your name."),
        revealed.error && failed(revealed.error),
        app.operator() ? h("button", { type: "button", disabled: revealed.asking, on: { click: () => reveal(app, l) } }, revealed.asking ? "…" : "Reveal the body") : h("p.quiet", {}, "This needs the role operator.")),
    found?.answer && [h("h2", {}, "The API's answer ", h("span.chip", {}, String(found.answer.status))),
      shownBody(found.answer.body, found.answer.encoding, found.answer.content_type, `letter-${l.seq}-answer`, "The API's answer"),
      found.answer.cut && h("p.quiet", {}, "The answer was longer; this is its beginning.")],
  ];
}

async function reveal(app, l) {
  const of = revealed.seq;
  revealed.asking = true;
  revealed.error = null;
  app.draw();
  try {
    const value = await post(`dead/${l.seq}/reveal`);
    if (revealed.seq === of) revealed.value = value;
    announce("The body is shown");
  } catch (err) {
    revealed.error = err;
  }
  revealed.asking = false;
  app.draw();
}
