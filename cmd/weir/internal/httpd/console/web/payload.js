// Bodies from producers and APIs: shown as text or in hexadecimal, never as markup or script.
import { h } from "./dom.js";
import { change, here } from "./route.js";

const most = 200_000; // characters that are shown; the command line shows the whole body

/** body shows one body. encoding is text or base64; name is what a screen reader calls it. */
export function body(text, encoding, type, id, name) {
  if (text === undefined || text === "") return h("p.quiet", {}, "It is empty.");
  const how = here().query.get("as") ?? "";
  const raw = encoding === "base64" ? bytesOf(text) : null;
  const readable = raw ? null : pretty(text);
  const shown = raw || how === "hex" ? hexadecimal(raw ?? new TextEncoder().encode(text)) : how === "raw" || readable === null ? text : readable;
  return h("section.payload", { "aria-label": name },
    !raw && h("div.actions", { role: "group", "aria-label": "Show as" }, [["", readable === null ? "Text" : "JSON"], ...(readable === null ? [] : [["raw", "Raw"]]), ["hex", "Hex"]].map(([name, label]) =>
      h("button", { type: "button", key: label, "aria-pressed": String(how === name), on: { click: () => change({ as: name }, { replace: true }) } }, label)),
    type && h("span.quiet", {}, type)),
    h("pre", { id, tabindex: 0 }, shown.slice(0, most)),
    shown.length > most && h("p.quiet", {}, "This is the beginning; the command line shows the whole body."));
}

function pretty(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : null;
  } catch {
    return null;
  }
}

function bytesOf(text) {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return new TextEncoder().encode(text);
  }
}

function hexadecimal(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length && lines.length < 4096; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((b) => b.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${part.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
  }
  return lines.join("\n");
}
