// Requests of the console to weir, all under /api/v1. An error says what happened and what to do.

const base = "/api/v1/";

/** Problem is a failed request: its status, the text for the user, and the body of the answer. */
export class Problem extends Error {
  constructor(status, text, body = null) {
    super(text);
    this.status = status;
    this.body = body;
  }
}

/** get returns an answer. An empty list, or a thing that does not exist, is a Problem with the status 404. */
export const get = (path, signal) => ask("GET", path, undefined, signal);

/** post makes weir do something. */
export const post = (path, body = {}) => ask("POST", path, body);

/** send is post with a body other than JSON: a file, of the given type. */
export const send = (path, body, type) => ask("POST", path, body, undefined, type);

/** remove deletes something. */
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
    throw new Problem(0, "Cannot reach weir: check that it runs and that this machine is connected. The page tries again by itself.");
  }
  const text = await answer.text();
  let value = null;
  try {
    value = text === "" ? null : JSON.parse(text);
  } catch {
    if (answer.ok) throw new Problem(answer.status, "The answer is not from weir: check the proxy between this browser and weir.");
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
    case 502: case 504: return "The proxy between this browser and weir says that weir does not answer.";
  }
  return told || `weir answered ${answer.status}.`;
}

/** list returns the list in an answer: the answer itself, or its member name. */
export function list(value, name) {
  if (Array.isArray(value)) return value;
  if (value && Array.isArray(value[name])) return value[name];
  return [];
}
