import { h } from "../dom.js";
import { vessel } from "../vessel.js";

let failed = null, busy = false;

/** login asks for a token. */
export function login(app) {
  document.title = "Log in · weir";
  return h("main.alone", { id: "page", key: "login", tabindex: -1 },
    vessel({ level: 5, capacity: 9, left: 1, label: "weir", size: "middle" }),
    h("h1", {}, "Log in to weir"),
    h("form", { on: { submit: (event) => enter(event, app) } },
      h("div.field", {}, h("label", { for: "token" }, "Token"),
        h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, autofocus: true, "aria-describedby": "token-hint" }),
        h("small", { id: "token-hint" }, "WEIR_HTTP_TOKEN, or one of http.tokens in the configuration with the role viewer or operator. The server keeps it until you log out; this browser keeps only a cookie.")),
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
    failed = err.status === 401 ? "Unknown token. Check that its beginning and end are complete." : err.message;
    field.focus();
  }
  busy = false;
  app.draw();
}
