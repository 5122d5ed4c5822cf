// The samples of each API and each deep bucket, for drawings: at most 15 minutes, of at most mostBuckets buckets. A page that was just
// opened begins with the samples that weir has kept.

export const span = 15 * 60 * 1000; // milliseconds
const mostBuckets = 400;
const longest = 60_000; // milliseconds between two samples; with a longer gap it is unknown when the changes happened

/**
 * Past keeps samples: {at, level, since, came, left, refused}. came, left and refused count what happened after since. since is null if
 * that is unknown: for the first sample of a page, and for the first one after a replica appeared or went away.
 */
export class Past {
  constructor() {
    this.lines = new Map(); // samples by name, the last used at the end
    this.counts = new Map(); // by name: the last counts of a snapshot; they only grow, until they restart at zero
    this.replicas = null; // the replicas behind the counts
  }

  /** of returns the samples of an API, or of one of its buckets. */
  of(api, key) {
    return this.lines.get(name(api, key)) ?? [];
  }

  /** take adds the samples of a snapshot. */
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

  /** before puts the samples that weir has kept in front of those that this page has received. */
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

// between returns what happened between two counts. A count that has become smaller was restarted, so all of it is new. Departures from a
// bucket are not counted: they follow from the arrivals and the level.
function between(a, b) {
  const grown = (what) => (b[what] >= a[what] ? b[what] - a[what] : b[what]);
  const came = grown("came");
  return { at: b.at, level: b.level, since: a.at, came, left: b.left === null ? Math.max(0, came - (b.level - a.level)) : grown("left"), refused: grown("refused") };
}

/**
 * slots divides the last while into equal parts, oldest first: {at, level, came, left, refused}, all but the level per second. A part
 * without samples is null.
 */
export function slots(line, now, while_ = span, parts = 90) {
  const width = while_ / parts;
  const begin = Math.floor(now / width) * width + width - while_; // the parts keep their borders as time passes
  const all = Array.from({ length: parts }, () => null);
  for (const sample of line) {
    const at = Math.floor((sample.at - begin) / width);
    if (at >= 0 && at < parts && isKnown(sample)) add((all[at] ??= nothing(begin + at * width)), sample);
  }
  for (const slot of all) if (slot) perSecond(slot);
  return all;
}

/** pace returns arrivals, departures and refusals per second over the last while, or null if they are unknown. */
export function pace(line, while_ = 10_000) {
  const sum = nothing(0), since = line.length > 0 ? line.at(-1).at - while_ : 0;
  for (let i = line.length - 1; i >= 0 && line[i].since >= since && isKnown(line[i]); i--) add(sum, line[i]);
  return sum.seconds > 0 ? perSecond(sum) : null;
}

// isKnown reports whether the changes in a sample can be dated.
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
