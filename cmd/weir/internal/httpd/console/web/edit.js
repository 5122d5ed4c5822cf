// The changes of one letter before its redrive, as `weir dead edit` takes them: another body, headers to set and headers to remove.
import { h } from "./dom.js";
import { bytes } from "./format.js";

/** editOf begins the changes of a letter. text is its body; null if that is not text. */
export const editOf = (l, text) => ({ text, body: text, file: null, error: "", set: "", unset: "", maybeCalled: l.reason === "unknown" });

/** isChanged reports whether anything is changed, and can be sent. */
export const isChanged = (e) => !e.error && wrongLine(e) === undefined && Object.keys(changesOf(e)).length > 0;

/** changesOf returns the changes as a request for a redrive has them. */
export function changesOf(e) {
  const all = {}, set = {};
  if (e.file) all.body_base64 = e.file.base64;
  else if (e.body !== e.text) all.body = e.body;
  for (const line of lines(e.set)) {
    const at = line.indexOf(":"), name = line.slice(0, at).trim();
    (set[name] ??= []).push(line.slice(at + 1).trim());
  }
  if (Object.keys(set).length > 0) all.set = set;
  const unset = e.unset.split(/[\s,]+/).filter(Boolean);
  if (unset.length > 0) all.unset = unset;
  return all;
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

const wrongLine = (e) => lines(e.set).find((line) => line.indexOf(":") < 1);

/** editor draws the fields of the changes. */
export function editor(e, draw) {
  const set = (name) => (event) => { e[name] = event.target.value; draw(); };
  const wrong = wrongLine(e);
  return [
    e.text !== null && h("div.field", {}, h("label", { for: "edit-body" }, "The body to submit"), h("textarea", { id: "edit-body", value: e.body, disabled: e.file !== null, spellcheck: "false", on: { input: set("body") } })),
    h("div.field", {}, h("label", { for: "edit-file" }, "Another body, from a file"), h("input", { id: "edit-file", type: "file", on: { change: (event) => read(e, event.target.files[0] ?? null, draw) } })),
    h("div", { role: "status" }, e.error ? h("div.told.bad", {}, h("p", {}, e.error)) : e.file && h("p.quiet", {}, `The body will be the file's ${bytes(e.file.size)}.`)),
    h("div.field", {}, h("label", { for: "edit-set" }, "Headers to set, one a line, such as Weir-Path: /v3"), h("textarea.short", { id: "edit-set", value: e.set, spellcheck: "false", "aria-invalid": wrong === undefined ? null : "true", "aria-describedby": "edit-wrong", on: { input: set("set") } })),
    h("div", { id: "edit-wrong", role: "status" }, wrong !== undefined && h("div.told.bad", {}, h("p", {}, `Write “Name: value” instead of “${wrong}”.`))),
    h("div.field", {}, h("label", { for: "edit-unset" }, "Headers to remove, such as Weir-Deadline"), h("input", { id: "edit-unset", value: e.unset, autocomplete: "off", spellcheck: "false", on: { input: set("unset") } })),
  ];
}

// read takes the body from a file.
async function read(e, file, draw) {
  Object.assign(e, { file: null, error: "" });
  e.reading = file;
  if (file) {
    try {
      const data = new Uint8Array(await file.arrayBuffer());
      if (e.reading !== file) return;
      e.file = { size: data.length, base64: base64Of(data) };
    } catch (err) {
      if (e.reading === file) e.error = `The file cannot be read: ${err.message}`;
    }
  }
  draw();
}

function base64Of(data) {
  let text = "";
  for (let at = 0; at < data.length; at += 4096) text += String.fromCharCode(...data.subarray(at, at + 4096));
  return btoa(text);
}
