// Which letters are meant: what the address says, as weir is asked and as a command says it.

const names = ["api", "key", "reason", "status", "since", "until", "job"];

/** selection reads it from an address. */
export function selection(query) {
  const picked = {};
  for (const name of names) if (query.get(name)) picked[name] = query.get(name);
  return picked;
}

/** asQuery writes it for a question; what is not there is left out. */
export function asQuery(picked, more = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...picked, ...more })) if (value !== "" && value !== undefined) query.set(name, String(value));
  return query.toString();
}

/** asWords writes it for what is to be done: nothing chosen is all of them. A job's letters are chosen one by one. */
export function asWords(picked) {
  if (picked.seqs) return { seqs: picked.seqs };
  return Object.keys(picked).length === 0 ? { all: true } : { ...picked };
}

/** asFlags writes it for a command. */
export const asFlags = (picked) => names.filter((n) => picked[n]).map((n) => `--${n} ${/^[\w.:@/+-]+$/.test(picked[n]) ? picked[n] : "'" + picked[n].replaceAll("'", "'\\''") + "'"}`);

/** asText says it to people. */
export const asText = (picked) => (Object.keys(picked).length === 0 ? "all letters" : Object.entries(picked).map(([n, v]) => `${n} ${v}`).join(", "));
