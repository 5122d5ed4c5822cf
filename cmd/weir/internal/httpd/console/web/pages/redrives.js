import { h } from "../dom.js";
import { link } from "../route.js";
import { brief, count, price, things } from "../format.js";
import { exact, since } from "../time.js";
import { list, post, remove } from "../ask.js";
import { ask } from "../dialog.js";
import { empty, failed, waits, command } from "../said.js";

/** redrives is the list of redrives, and the page of one with its progress. */
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
      : tasks.length === 0 ? empty("Nothing has been redriven yet", "A redrive submits the jobs of dead letters again, at a rate that their buckets can take. Begin with the letters:", h("a.button", { href: "/letters" }, "Dead letters"))
        : h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, "Redrives, the newest first"),
          h("thead", {}, h("tr", {}, ["Redrive", "State", "Begun", "By", "What", "Progress"].map((name) => h("th", { scope: "col" }, name)))),
          h("tbody", {}, tasks.map((t) => row(app, t))))),
    command("weir dead tasks"),
  ];
}

function row(app, t) {
  return h("tr", { key: t.name },
    h("td.code", { "data-name": "Redrive" }, h("a", { href: link("/redrives", { id: t.name }) }, t.name)),
    h("td.fit", { "data-name": "State" }, stateChip(t)),
    h("td.nowrap", { "data-name": "Begun" }, since(t.created, app.now())),
    h("td", { "data-name": "By" }, t.by || "–"),
    h("td.long", { "data-name": "What" }, t.selection || "all letters"),
    h("td.draw", { "data-name": "Progress" }, bar(t)));
}

function one(app, id) {
  const asked = app.answers.use("redrives/" + encodeURIComponent(id), 700), t = asked.value;
  const title = h("h1", {}, h("a", { href: "/redrives" }, "Redrives"), " / ", id);
  if (!t) return [title, asked.error?.status === 404 ? empty("There is no such redrive", "It is too old, or never existed.") : asked.error ? failed(asked.error) : waits("the redrive")];
  const n = figures(t), going = t.state === "running" || t.state === "waiting";
  return [
    h("div.bar", {}, title, app.operator() && h("div.actions", {}, going && h("button.danger", { type: "button", on: { click: () => stop(app, id, n) } }, "Stop …"), (t.state === "stopped" || t.state === "failed") && h("button.main", { type: "button", on: { click: () => resume(app, id, n) } }, "Go on …"))),
    asked.error && failed(asked.error),
    h("section.card", { "aria-label": "Progress" },
      h("p", {}, stateChip(t), " ", h("b.n", { "data-field": "redriven" }, count(n.redriven)), ` of ${things(n.all, "letter")} redriven`, going && t.left_ms > 0 && h("span.quiet", {}, `, about ${brief(t.left_ms)} more`)),
      t.why && t.state !== "done" && h("p", {}, t.why),
      bar(t, "tall"),
      h("dl.figures", {}, [["redriven", n.redriven], ["overflowed again", n.overflowed], ["refused again", n.refused], ["resubmitted since", n.settled], ["left alone", n.skipped], ["to do", n.todo]].map(([name, v]) => h("div", {}, h("dt", {}, name), h("dd", {}, count(v)))))),
    h("section.card", { class: "spaced", "aria-label": "What it is" }, h("dl.facts", {},
      fact("begun", exact(t.created), h("span.quiet", {}, " (", since(t.created, app.now()), ")")), t.ended && fact("ended", exact(t.ended)), t.stopped_by && fact("stopped by", t.stopped_by), t.by && fact("by", t.by),
      fact("what", t.selection || "all letters"), fact("at most", t.rate), fact("cost", price(t.cost)), t.worker && fact("run by", t.worker))),
    n.overflowed + n.refused > 0 && h("p", {}, `${things(n.overflowed + n.refused, "job")} became ${n.overflowed + n.refused === 1 ? "a letter" : "letters"} again: `, h("a", { href: "/letters" }, "look at them"), ". Redrive them at a lower rate, or when their buckets have room."),
    h("p.related", {}, h("a", { href: "/letters" }, "Dead letters"), " · ", h("a", { href: "/buckets" }, "Watch the buckets")),
  ];
}

const fact = (name, ...what) => [h("dt", {}, name), h("dd", {}, ...what)];

function figures(t) {
  const skipped = Object.values(t.skipped ?? {}).reduce((a, b) => a + b, 0);
  return { redriven: t.redriven + t.known_already, overflowed: t.overflowed, refused: t.refused, settled: t.settled + (t.gone ?? 0), skipped, all: t.total, todo: Math.max(0, t.total - t.done) };
}

function bar(t, shape = "") {
  const n = figures(t), part = (v) => ({ "--share": String(n.all > 0 ? v / n.all : 0) });
  return h("div.progress", { class: shape, role: "progressbar", "aria-label": "letters redriven", "aria-valuemin": 0, "aria-valuemax": n.all, "aria-valuenow": n.all - n.todo },
    h("span.done", { css: part(n.redriven + n.settled) }), h("span.again", { css: part(n.overflowed + n.refused) }), h("span.left-alone", { css: part(n.skipped) }));
}

function stateChip(t) {
  const shade = { done: "good", stopped: "held", failed: "dead" }[t.state] ?? "calm";
  return h("span.chip", { class: shade, "data-state": t.state }, t.state);
}

async function stop(app, name, n) {
  await ask({
    title: "Stop this redrive?", does: "Stop the redrive", grave: true,
    view: () => h("p", {}, `${things(n.redriven, "letter")} ${n.redriven === 1 ? "has" : "have"} been redriven and ${n.redriven === 1 ? "stays" : "stay"} so. The other ${count(n.todo)} stay letters; nothing is lost, and you can resume the redrive.`),
    act: () => remove("redrives/" + encodeURIComponent(name)),
  });
  app.answers.again("redrives");
}

async function resume(app, name, n) {
  await ask({
    title: "Resume this redrive?", does: `Redrive ${things(n.todo, "letter")}`,
    view: () => h("p", {}, `${things(n.todo, "letter")} ${n.todo === 1 ? "is" : "are"} left to redrive.`),
    act: () => post("redrives/" + encodeURIComponent(name) + "/resume"),
  });
  app.answers.again("redrives");
}
