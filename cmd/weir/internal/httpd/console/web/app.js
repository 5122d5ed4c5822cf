// The console: one document, a page for each address, drawn anew whenever data arrives.
import { h, patch } from "./dom.js";
import { follow, go, here } from "./route.js";
import { get, post } from "./ask.js";
import { Stream } from "./stream.js";
import { Past, span } from "./past.js";
import { Answers } from "./answers.js";
import { head, contact, foot } from "./frame.js";
import { shortcuts } from "./shortcuts.js";
import { announce } from "./announce.js";
import { wear } from "./theme.js";
import { login } from "./pages/login.js";
import { pageAt, titleOf } from "./pages/index.js";

const app = {
  session: null, // the user's name and role; null until weir has answered
  snapshot: null, // the newest snapshot that is shown
  newest: null, // the newest snapshot received
  live: "late", // or live, or lost
  frozen: false, // the user has frozen the numbers
  menu: false, // the menu of a narrow window is open
  past: new Past(),
  asked: new Set(), // the histories that weir was asked for
  answers: new Answers(() => draw()),
  now: () => (app.snapshot ? Date.parse(app.snapshot.at) : Date.now()),
  operator: () => app.session?.role === "operator",
  heard: () => stream?.heard ?? Date.now(), // when weir last answered
  draw: () => draw(),
  open,
  freeze,
  enter,
  leave,
  history,
};

const gap = 10_000; // milliseconds without a snapshot after which the history is asked for anew

let due = false, page = null, stream = null;

function draw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const { path, query } = here();
    app.answers.begin();
    const shell = document.getElementById("shell");
    document.documentElement.classList.toggle("frozen", app.frozen);
    document.documentElement.classList.toggle("old", Boolean(stream && app.snapshot) && app.live !== "live");
    if (!app.session || app.session.role === "anybody") patch(shell, app.session ? login(app) : []);
    else {
      const view = page.view(app, query);
      document.title = (app.live === "lost" ? "No contact · " : "") + titleOf(page, query) + " · weir";
      patch(shell, [head(app, path), contact(app), h("main", { id: "page", key: path, tabindex: -1 }, view), foot(app)]);
    }
    app.answers.end();
  });
}

function moved({ back }) {
  const was = page;
  page = pageAt(here().path);
  app.menu = false;
  draw();
  if (page === was) return;
  for (const open of document.querySelectorAll("dialog[open]")) open.close();
  requestAnimationFrame(() => {
    const title = document.querySelector("main h1");
    title?.setAttribute("tabindex", "-1");
    title?.focus({ preventScroll: true });
    if (!back) scrollTo(0, 0);
  });
}

function take(snapshot) {
  if (app.newest && Date.parse(snapshot.at) - Date.parse(app.newest.at) > gap) app.past = new Past();
  app.newest = snapshot;
  app.past.take(snapshot);
  if (app.frozen) return;
  const before = app.snapshot?.status;
  app.snapshot = snapshot;
  if (before && before.healthy !== snapshot.status.healthy) {
    announce(snapshot.status.healthy ? "weir is healthy again" : "weir is not healthy: " + snapshot.status.problems[0]?.what, { urgent: true });
  }
  draw();
}

function turn(state) {
  if (state === "late" && app.live === "live") announce("Live updates have stopped; trying again", { urgent: true });
  if (state === "live" && app.snapshot) announce("Live updates have resumed");
  if (state !== "live") app.asked.clear(); // weir has kept the samples that this page missed
  app.live = state;
  draw();
}

function freeze() {
  app.frozen = !app.frozen;
  if (!app.frozen && app.newest) app.snapshot = app.newest;
  announce(app.frozen ? "The numbers are frozen" : "The numbers are live");
  draw();
}

// open opens or closes the menu of a narrow window.
function open(menu) {
  app.menu = menu;
  draw();
}

// history asks weir once for the samples that it has kept of an API or a bucket.
function history(api, key) {
  const path = "history?" + new URLSearchParams(key === undefined ? { api } : { api, key });
  if (app.asked.has(path)) return;
  app.asked.add(path);
  get(path).then((kept) => {
    app.past.before(api, key, kept.samples ?? []);
    draw();
  }).catch(() => setTimeout(() => app.asked.delete(path), span / 30));
}

// know asks weir for the user's name and role, and opens or closes the stream, which only viewers may read.
async function know() {
  try {
    app.session = await get("session");
    stream?.contact();
  } catch (err) {
    if (err.status === 404) app.session = { name: "", role: "operator", login: false };
    else {
      setTimeout(know, 2000);
      return;
    }
  }
  if (app.session.role !== "anybody" && !stream) stream = new Stream({ tell: take, turn, refused: know });
  if (app.session.role === "anybody") {
    stream?.close();
    stream = null;
  }
  draw();
}

async function enter(token) {
  app.session = await post("login", { token });
  app.answers.clear();
  await know();
}

async function leave() {
  await post("logout");
  stream?.close();
  stream = null;
  app.snapshot = app.newest = null;
  app.past = new Past();
  app.answers.clear();
  await know();
}

wear();
page = pageAt(here().path);
follow(moved);
shortcuts(app, go);
know();
setInterval(() => app.session && draw(), 1000); // ages are shown to the second
