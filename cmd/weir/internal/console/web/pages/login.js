import { h } from "../dom.js";
import { vessel } from "../vessel.js";

let failed = null, busy = false;

/** login asks who somebody is. */
export function login(app) {
  document.title = "Log in · weir";
  return h("main.alone", { id: "page", key: "login", tabindex: -1 },
    vessel({ level: 5, capacity: 9, left: 1, label: "weir", size: "middle" }),
    h("h1", {}, "Log in to weir"),
    h("form", { on: { submit: (event) => enter(event, app) } },
      h("div.field", {}, h("label", { for: "token" }, "Token"),
        h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, autofocus: true, "aria-describedby": "token-hint" }),
        h("small", { id: "token-hint" }, "That of WEIR_HTTP_TOKEN, or one under http.tokens in the configuration with the role viewer or operator. It is kept on the server until you log out; this browser keeps a cookie.")),
      failed && h("div.told.bad", { role: "alert" }, h("p", {}, failed)),
      h("button.main", { type: "submit", disabled: busy }, "Log in")));
}

async function enter(event, app) {
  event.preventDefault();
  const field = document.getElementById("token");
  busy = true;
  failed = null;
  app.draw();
  try {
    await app.enter(field.value);
    field.value = "";
  } catch (err) {
    failed = err.status === 401 ? "Nobody has this token. Look at its beginning and end: nothing of it may be missing." : err.message;
    field.focus();
  }
  busy = false;
  app.draw();
}
