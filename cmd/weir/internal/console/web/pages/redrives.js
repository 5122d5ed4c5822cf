import { h } from "../dom.js";
import { link } from "../route.js";
import { clock, count, since, things, brief } from "../format.js";
import { list, remove } from "../ask.js";
import { ask } from "../dialog.js";
import { empty, failed, waits, command } from "../said.js";

/** redrives are the tasks that redrive letters, and one of them with its progress. */
export const redrives = {
  path: "/redrives", title: (query) => (query.get("id") ? "Redrive " + query.get("id") : "Redrives"), nav: "Redrives", key: "r",
  view(app, query) {
    const id = query.get("id");
    return id ? one(app, id) : all(app);
  },
};

function all(app) {
  const asked = app.answers.use("redrives", 2000), tasks = list(asked.value, "redrives");
  return [
    h("h1", {}, "Redrives"),
    asked.error && asked.error.status !== 404 && failed(asked.error),
    asked.value === undefined && !asked.error ? waits("the redrives")
      : tasks.length === 0 ? empty("Nothing has been redriven yet", "A redrive hands the jobs of dead letters in again, at a rate that their buckets take. Begin with the letters:", h("a.button", { href: "/letters" }, "Dead letters"))
        : h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, "Redrives, the newest first"),
          h("thead", {}, h("tr", {}, ["Redrive", "State", "Begun", "By", "What", "Progress"].map((name) => h("th", { scope: "col" }, name)))),
          h("tbody", {}, tasks.map((t) => row(app, t))))),
    command("weir dead redrive --help"),
  ];
}

const idOf = (t) => t.id ?? t.name;

function row(app, t) {
  return h("tr", { key: idOf(t) },
    h("td.code", { "data-name": "Redrive" }, h("a", { href: link("/redrives", { id: idOf(t) }) }, idOf(t))),
    h("td.fit", { "data-name": "State" }, stateChip(t)),
    h("td.nowrap", { "data-name": "Begun", title: clock(t.started) }, since(t.started, app.now())),
    h("td", { "data-name": "By" }, t.who ?? "–"),
    h("td.long", { "data-name": "What" }, t.selection || "all letters", t.why && h("span.quiet", {}, `: ${t.why}`)),
    h("td.draw", { "data-name": "Progress" }, bar(t)));
}

function one(app, id) {
  const asked = app.answers.use("redrives/" + encodeURIComponent(id), 700), t = asked.value;
  const title = h("h1", {}, h("a", { href: "/redrives" }, "Redrives"), " / ", id);
  if (!t) return [title, asked.error?.status === 404 ? empty("There is no such redrive", "It is too old, or was never begun.") : asked.error ? failed(asked.error) : waits("the redrive")];
  const n = figures(t), running = t.state === "running";
  return [
    h("div.bar", {}, title, app.operator() && running && h("div.actions", {}, h("button.danger", { type: "button", on: { click: () => cancel(app, id, n) } }, "Cancel …"))),
    asked.error && failed(asked.error),
    h("section.card", { "aria-label": "Progress" },
      h("p", {}, stateChip(t), " ", h("b.n", { "data-field": "redriven" }, count(n.redriven)), ` of ${things(n.all, "letter")} redriven`, running && n.eta !== null && h("span.quiet", {}, `, about ${brief(n.eta)} more`)),
      bar(t, "tall"),
      h("dl.figures", {}, [["redriven", n.redriven], ["overflowed again", n.overflowed], ["refused again", n.refused], ["settled", n.settled], ["left alone", n.skipped], ["to do", n.todo]].map(([name, v]) => h("div", {}, h("dt", {}, name), h("dd", {}, count(v)))))),
    h("section.card", { class: "spaced", "aria-label": "What it is" }, h("dl.facts", {},
      fact("begun", clock(t.started), h("span.quiet", {}, ` (${since(t.started, app.now())})`)), t.ended && fact("ended", clock(t.ended)), t.who && fact("by", t.who), t.why && fact("why", t.why),
      fact("what", t.selection || "all letters"), t.rate && fact("at most", t.rate), t.error && fact("error", t.error))),
    n.overflowed + n.refused > 0 && h("p", {}, `${count(n.overflowed + n.refused)} became letters again: `, h("a", { href: "/letters" }, "look at them"), ". Redrive them slower, or when their buckets have room."),
    h("p.related", {}, h("a", { href: "/letters" }, "Dead letters"), " · ", h("a", { href: "/buckets" }, "Watch the buckets")),
  ];
}

const fact = (name, ...what) => [h("dt", {}, name), h("dd", {}, ...what)];

/** figures are a task's, whatever they are called. */
function figures(t) {
  const d = t.did ?? t.tally ?? t;
  const skipped = typeof d.skipped === "object" && d.skipped !== null ? Object.values(d.skipped).reduce((a, b) => a + b, 0) : d.skipped ?? 0;
  const n = { redriven: (d.redriven ?? 0) + (d.known_already ?? 0), overflowed: d.overflowed ?? 0, refused: d.refused ?? 0, settled: d.settled ?? 0, skipped };
  const did = n.redriven + n.overflowed + n.refused + n.settled + n.skipped;
  n.all = t.letters ?? t.total ?? did;
  n.todo = Math.max(0, n.all - did);
  const passed = Date.now() - Date.parse(t.started);
  n.eta = did > 0 && n.todo > 0 ? (passed / did) * n.todo : null;
  return n;
}

function bar(t, shape = "") {
  const n = figures(t), part = (v) => ({ "--share": String(n.all > 0 ? v / n.all : 0) });
  return h("div.progress", { class: shape, role: "progressbar", "aria-label": "letters redriven", "aria-valuemin": 0, "aria-valuemax": n.all, "aria-valuenow": n.all - n.todo },
    h("span.done", { css: part(n.redriven + n.settled) }), h("span.again", { css: part(n.overflowed + n.refused) }), h("span.left-alone", { css: part(n.skipped) }));
}

function stateChip(t) {
  const shade = { running: "calm", done: "good", cancelled: "held", failed: "dead" }[t.state] ?? "calm";
  return h("span.chip", { class: shade, "data-state": t.state }, t.state);
}

async function cancel(app, id, n) {
  await ask({
    title: "Cancel this redrive?", does: "Cancel the redrive", grave: true,
    view: () => h("p", {}, `${things(n.redriven, "letter")} have been redriven and stay so. The other ${count(n.todo)} stay letters; nothing is lost.`),
    act: () => remove("redrives/" + encodeURIComponent(id)),
  });
  app.answers.again("redrives");
}
