// What the console asks weir for, all of it under /api/v1. An error says what happened and what to do.

const base = "/api/v1/";

/** Problem is an answer that is none. */
export class Problem extends Error {
  constructor(status, text, body = null) {
    super(text);
    this.status = status;
    this.body = body;
  }
}

/** get asks; a list that is empty or a thing that is not there is a Problem with the status 404. */
export const get = (path, signal) => ask("GET", path, undefined, signal);

/** post has something done. */
export const post = (path, body = {}) => ask("POST", path, body);

/** send is post with a body that is not JSON: a file, as its type says. */
export const send = (path, body, type) => ask("POST", path, body, undefined, type);

/** remove takes something away. */
export const remove = (path) => ask("DELETE", path);

async function ask(method, path, body, signal, type = "application/json") {
  let answer;
  try {
    answer = await fetch(base + path, {
      method, signal, cache: "no-store", credentials: "same-origin", redirect: "error",
      headers: body === undefined ? {} : { "Content-Type": type },
      body: body === undefined || type !== "application/json" ? body : JSON.stringify(body),
    });
  } catch (err) {
    if (signal?.aborted) throw err;
    throw new Problem(0, "weir cannot be reached: look whether it runs and whether this machine is connected. The page tries again by itself.");
  }
  const text = await answer.text();
  let value = null;
  try {
    value = text === "" ? null : JSON.parse(text);
  } catch {
    if (answer.ok) throw new Problem(answer.status, "what answered is not weir: look at what stands between this browser and it.");
  }
  if (!answer.ok) throw new Problem(answer.status, explain(answer, value), value);
  return value;
}

function explain(answer, value) {
  const told = value?.detail || value?.title || answer.statusText;
  switch (answer.status) {
    case 401: return "You are logged out: log in again.";
    case 403: return told + (told.includes("role") ? "" : ": ask for a token with the role operator.");
    case 429: return `${told}; try again in ${answer.headers.get("Retry-After") ?? "some"} s.`;
    case 502: case 504: return "What stands between this browser and weir says that weir does not answer.";
  }
  return told || `weir answered ${answer.status}.`;
}

/** list is what an answer lists, however it is wrapped. */
export function list(value, name) {
  if (Array.isArray(value)) return value;
  if (value && Array.isArray(value[name])) return value[name];
  return [];
}
