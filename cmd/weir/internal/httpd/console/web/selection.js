// A selection of letters: read from the address, written as a query, a request, flags of a command, or text.

const names = ["api", "key", "reason", "status", "since", "until", "job"];

/** selection reads a selection from an address. */
export function selection(query) {
  const picked = {};
  for (const name of names) if (query.get(name)) picked[name] = query.get(name);
  return picked;
}

/** asQuery writes a selection as a query, without empty parts. */
export function asQuery(picked, more = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...picked, ...more })) if (value !== "" && value !== undefined) query.set(name, String(value));
  return query.toString();
}

/** asWords writes a selection as the body of a request. An empty selection means all letters. */
export function asWords(picked) {
  if (picked.seqs) return { seqs: picked.seqs };
  return Object.keys(picked).length === 0 ? { all: true } : { ...picked };
}

/** asFlags writes a selection as flags of a command. */
export const asFlags = (picked) => names.filter((n) => picked[n]).map((n) => `--${n} ${/^[\w.:@/+-]+$/.test(picked[n]) ? picked[n] : "'" + picked[n].replaceAll("'", "'\\''") + "'"}`);

/** asText writes a selection for users. */
export const asText = (picked) => (Object.keys(picked).length === 0 ? "all letters" : Object.entries(picked).map(([n, v]) => `${n} ${v}`).join(", "));
