// What the console has received lately of each api and each deep bucket, for drawings: at most fifteen minutes, and of so many buckets. A
// page that has just been opened begins with what weir has kept itself.

export const span = 15 * 60 * 1000; // milliseconds
const mostBuckets = 400;
const longest = 60_000; // milliseconds between two samples: beyond that nobody knows when something was

/**
 * Past keeps samples: {at, level, since, came, left, refused}. came, left and refused are what happened since then; where since is null that
 * is not known, and nothing is made up: of the first sample of a page, and of one before which a replica came or went.
 */
export class Past {
  constructor() {
    this.lines = new Map(); // by name, the latest used last
    this.counts = new Map(); // by name: what a snapshot counted last, which only grows until it begins anew
    this.replicas = null; // those that counted
  }

  /** of is what is known of an api, or of a bucket of it. */
  of(api, key) {
    return this.lines.get(name(api, key)) ?? [];
  }

  /** take notes what a snapshot tells. */
  take(snapshot) {
    const at = Date.parse(snapshot.at);
    const replicas = snapshot.status.replicas.map((r) => r.instance + " " + r.started).sort().join("\n");
    if (replicas !== this.replicas) this.counts.clear();
    this.replicas = replicas;
    for (const a of snapshot.status.apis) {
      this.add(name(a.api), { at, level: a.jobs, came: a.accepted, left: a.called, refused: a.throttled });
    }
    for (const b of snapshot.buckets) {
      this.add(name(b.api, b.key), { at, level: b.depth, came: b.arrived, left: null, refused: 0 });
    }
    this.bound();
  }

  add(of, now) {
    const line = this.lines.get(of) ?? [], before = this.counts.get(of);
    if (line.length > 0 && line.at(-1).at >= now.at) return;
    line.push(before ? between(before, now) : { at: now.at, level: now.level, since: null, came: 0, left: 0, refused: 0 });
    while (line.length > 0 && line[0].at < now.at - span) line.shift();
    this.lines.delete(of);
    this.lines.set(of, line);
    this.counts.set(of, now);
  }

  /** before puts what weir has kept before what this page has received. Of each part it tells what came and left in it. */
  before(api, key, parts) {
    const of = name(api, key), line = this.lines.get(of) ?? [], first = line[0]?.at ?? Infinity;
    const older = parts.filter((p) => p.at < first).map((p, i, all) => ({ ...p, since: i > 0 ? all[i - 1].at : null }));
    if (older.length > 0) this.lines.set(of, older.concat(line));
  }

  bound() {
    let buckets = this.lines.size;
    for (const of of this.lines.keys()) {
      if (buckets <= mostBuckets) return;
      this.lines.delete(of);
      this.counts.delete(of);
      buckets--;
    }
  }
}

const name = (api, key) => JSON.stringify(key === undefined ? [api] : [api, key]);

// between is what happened between two counts. A count that has become less has begun anew, and all of it is new. What left a bucket is not
// counted: it is what came and is not there.
function between(a, b) {
  const grown = (what) => (b[what] >= a[what] ? b[what] - a[what] : b[what]);
  const came = grown("came");
  return { at: b.at, level: b.level, since: a.at, came, left: b.left === null ? Math.max(0, came - (b.level - a.level)) : grown("left"), refused: grown("refused") };
}

/**
 * slots divides the last while into equal parts, oldest first: {at, level, came, left, refused}, of which all but the level are a second's.
 * Where nothing is known of a part it is null.
 */
export function slots(line, now, while_ = span, parts = 90) {
  const width = while_ / parts;
  const begin = Math.floor(now / width) * width + width - while_; // parts stay where they are as time goes on
  const all = Array.from({ length: parts }, () => null);
  for (const sample of line) {
    const at = Math.floor((sample.at - begin) / width);
    if (at >= 0 && at < parts && isKnown(sample)) add((all[at] ??= nothing(begin + at * width)), sample);
  }
  for (const slot of all) if (slot) perSecond(slot);
  return all;
}

/** pace is what came, left and was refused in a second, over the last while; null where that is not known. */
export function pace(line, while_ = 10_000) {
  const sum = nothing(0), since = line.length > 0 ? line.at(-1).at - while_ : 0;
  for (let i = line.length - 1; i >= 0 && line[i].since >= since && isKnown(line[i]); i--) add(sum, line[i]);
  return sum.seconds > 0 ? perSecond(sum) : null;
}

// isKnown reports whether it is known when what a sample tells happened.
const isKnown = (sample) => sample.since !== null && sample.at - sample.since <= longest;

const nothing = (at) => ({ at, level: 0, seconds: 0, came: 0, left: 0, refused: 0 });

function add(sum, sample) {
  sum.level = sample.level;
  sum.seconds += (sample.at - sample.since) / 1000;
  for (const what of ["came", "left", "refused"]) sum[what] += sample[what];
}

function perSecond(sum) {
  for (const what of ["came", "left", "refused"]) sum[what] /= sum.seconds;
  return sum;
}
