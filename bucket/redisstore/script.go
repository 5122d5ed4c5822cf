package redisstore

import "github.com/redis/go-redis/v9"

// script does everything in one step of the server: a reservation reads and writes all its limits at once. It is the
// only repetition of the arithmetic of package bucket. It follows bucket's engine.go, gcra.go, meter.go, quota.go,
// sliding.go, permits.go and line.go line by line, with their names. A differential test checks that both give the same
// grants.
//
// KEYS are the state, the open grants of the api and of its account (without one, the same key), the log of each shared
// limit (sliding ones use it), and then the bucket of each key asked for. ARGV is flat: see request.go. All answers are
// decimal strings, because Redis drops the fraction of a Lua number in a reply, and Lua may write a number with an
// exponent.
//
// The kind of a shared limit is one letter. cap is the largest cost that can pass. Every limit also has shadow, held,
// left and of (script_left.go). The fields l.… hold its state. In the hash of KEYS[1], a field's name is the limit's
// name, ":" and the letters in brackets:
//
//	r  a rate             burst, p/q the interval, per the window and guard the jitter; t and r the TAT (t, r), the
//	                      last serial (l), the pace counted in (p, q, b, w, j), until when calls may have arrived
//	                      that it has not counted (c), marks of what may be refunded (m), the asks of the state it
//	                      knows of (rn) and whether it only watched (y)
//	i  calls in flight    burst is how many there may be; the open grants count them: KEYS[2], for an account KEYS[3]
//	s  a sliding quota    per is its length, grain that of an entry of its log (KEYS), sum the units in the log (sum),
//	                      gone the latest end of an entry that no longer counts (g)
//	f  a fixed quota      per is the length of its periods; s and e the period, u the units used in it (s, e, u), final
//	                      its latest slot (z), others the other counted periods (o): bucket/turnback.go
//	q  a calendar quota   bounds are where periods begin, since Redis knows no time zones, and per the least length;
//	                      the rest as in f
//
// The state stores periods in TIME, and all other times in clock, which continues when TIME is set back. behind is by
// how much TIME is behind clock.
//
// A budget is a quota of its window. guard is how far calls keep away from both ends of a period. sign names how
// periods lie (d): if it changes, the count continues in the period that now holds. k says whether a quota was counted
// in a log or in periods. h is what a shadow limit would have held. x is 1 if the count of a quota was lost, and 2 if
// the quota missed asks because it was not in the rules. n is how many asks of the state the quota knows of.
//
// These fields are not of one limit. lines holds the Lines of replicas that wait (script_line.go). paces is the hash of
// the keys' rates. memory, least, known and latest are those of turning in carry.go. arrived is the latest time at
// which the call with the latest slot arrives.
//
// Numbers are doubles. Every product stays below 2^53, which bucket.Rules.Validate guarantees, so all of this is exact.
var script = redis.NewScript(luaCore + luaMeters + luaLeft + luaLine + luaReserve + luaSettle + luaMain)

const luaCore = `
local MAX, WANT = 9007199254740991, 64
local KEEP = {MARKS = 16, ENTRIES = 1024, PERIODS = 4, EARLY = 10000000}
local pos, sums = 0, false
local function str() pos = pos + 1 return ARGV[pos] end
local function num() pos = pos + 1 return tonumber(ARGV[pos]) end
local function dec(x) return string.format('%.0f', x) end
local function max(a, b) if a > b then return a end return b end
local function min(a, b) if a < b then return a end return b end
local function ceildiv(a, b)
  local r = a % b
  if r == 0 then return a / b end
  return (a - r) / b + 1
end
local function before(serial)
  if serial % WANT == 0 then return 0 end
  return serial - 1
end

-- gcra: g.t is the TAT, g.r its fraction in 1/q, g.p/g.q the interval
local function g_end(g) if g.r > 0 then return g.t + 1 end return g.t end
local function g_slot(g, now, burst, cost)
  local base, rem = now, 0
  if g.t >= now or cost > burst then base, rem = g.t, g.r end
  return max(now, base + ceildiv(rem + (cost - burst) * g.p, g.q))
end
local function g_take(g, at, cost)
  if at > g_end(g) then g.t, g.r = at, 0 end
  local x = g.r + cost * g.p
  g.r = x % g.q
  g.t = min(MAX, g.t + (x - g.r) / g.q)
end
local function g_untake(g, cost)
  local x = g.r - cost * g.p
  g.r = x % g.q
  g.t = g.t + (x - g.r) / g.q
end

-- carry.go: a pace is p/q the interval, burst, window and late
local function same(a, b)
  return a.p == b.p and a.q == b.q and a.burst == b.burst and a.window == b.window and a.late == b.late
end
local function after(to, last)
  local window = to.window
  if window == 0 then window = ceildiv(to.p, to.q) end
  return min(MAX, last + window + ceildiv((to.burst - 1) * to.p, to.q))
end
local function clear(to, last)
  if to.window == 0 then return after(to, last) end
  return last + to.window
end
local function coarse(t) return t + -t % 1048576 end
local function unknown(to, now, last)
  if last > 0 and clear(to, last) > now then return after(to, last) end
  return 0
end
local function saturated(x) return min(MAX, math.ceil(x) + 1) end
-- g.t, g.r and g.since are turned from one pace to another
local function carry(g, now, arrived, from, to)
  local e = g_end(g) + from.late
  local last = min(arrived, max(g.since, e - (from.p - from.p % from.q) / from.q))
  local known = g.since == 0 or to.window > 0 and g.since + to.window <= now
  local ratio = (to.p / to.q) / (from.p / from.q)
  local since, t = coarse(arrived), MAX
  if not known or ratio > 1 and to.window == 0 then
    t = MAX
  elseif ratio > 1 then
    t = now - to.window + saturated((max(0, e - now + to.window - to.late) + 1) * ratio)
  else
    local edge = max(last, now + from.late)
    since, t = g.since, edge + saturated((e - edge + 1) * ratio)
    if to.window > 0 then t = t - to.late end
  end
  local most = after(to, last)
  if t >= most then since, t = coarse(arrived), most end
  g.t, g.r, g.since = max(0, t), 0, since
end
`

// luaMain reads the request, checks the state, and then reserves, settles or seeds.
const luaMain = `
local mode, injected, known, fresh_id, seen, lease, far = str(), str(), str(), str(), num(), num(), num()
sums = num() == 1
local paces, memory, jitter = str(), num(), num()
local api, fresh, stranger, all = str(), num() == 1, num() == 1, {lease = num(), jitter = num()}
local version, sign, apis, left, old, awaited = 0, '', {}, false, false, nil -- place.go
if api ~= '' then
  P, version, sign = api .. '|', num(), str()
  for i = 1, num() do apis[i] = str() end
else
  all = nil
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if injected ~= '' then now = tonumber(injected) end
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do st[flat[i]] = flat[i + 1] end
if all then
  left = st[P .. 'moved'] and version <= load(P .. 'moved')
  old = version < load('gen') and st.sign ~= sign
  if mode ~= 'settle' and (left or old) then return {'behind'} end
  if not left and not old and (not st.gen or version > load('gen')) then
    st.gen, st.sign = dec(version), sign
    save('gen', st.gen) save('sign', sign)
  end
  for _, other in ipairs(apis) do
    if other ~= api and not st[other .. '|asked'] then awaited = other end
  end
end
-- Where TIME was set back, slots go by a clock that goes on, until TIME has caught up with it: no bucket, log or permit waits for
-- that. Calendars go by TIME. A little step back is waited for.
if now < load('clock') then
  behind = load('behind')
  if now + behind + KEEP.EARLY < load('clock') then behind = load('clock') - now end
  now = max(now + behind, load('clock'))
end

-- A state that is missing, of an earlier epoch than the caller knows, or of the same with fewer asks counted than the
-- caller has seen, was lost: what is not known counts as used up. A later epoch is a loss that somebody else has noticed.
local function born(epoch) return tonumber(string.match(epoch or '', '^(%d+)%.') or 0) end
local lost, existed, counted = known ~= 'fresh', st.epoch ~= nil, load('asked')
if st.epoch then
  lost = born(st.epoch) < born(known) or st.epoch == known and load('asked') < seen
end
-- of an account: the state does not know what the api was called for before, or has lost what the api had counted. An older
-- copy has lost that too: loss is the epoch that began with the last loss, and each api has the one of which it knows.
local copy = lost
lost = lost or stranger
local gone = lost or P ~= '' and not fresh and (not st[P .. 'asked'] or (st[P .. 'loss'] or '') ~= (st.loss or ''))
local counted_own = load(P .. 'asked')
if lost or not st.epoch then
  st.epoch = dec(max(now, born(known) + 1)) .. '.' .. fresh_id
  -- serials begin above all that were given before: fewer than one ask in 32 us on the average
  st.asked = dec(max(max(load('asked'), seen) + 1, math.floor(now / 32)))
  save('epoch', st.epoch)
end
if lost then
  st.cold, st.coldserial = dec(now), dec(load('asked') * WANT)
  save('cold', st.cold) save('coldserial', st.coldserial)
  if all then st.arrived = dec(max(load('arrived'), now + far + all.jitter)) end
  if all and copy then st.loss = st.epoch save('loss', st.loss) end
end
if gone then
  st[P .. 'cold'], st[P .. 'coldserial'] = dec(now), dec(load('asked') * WANT)
  save(P .. 'cold', st[P .. 'cold']) save(P .. 'coldserial', st[P .. 'coldserial'])
  st[P .. 'arrived'] = dec(max(load(P .. 'arrived'), now + far + jitter))
  st[P .. 'latest'] = dec(coarse(load(P .. 'arrived')))
end
cold, cold_all, coldserial = load(P .. 'cold'), all and load('cold') or 0, load(P .. 'coldserial')
st.clock, st.behind = dec(now), dec(behind)
-- keys go by other rates from now on: turning in carry.go
if st[P .. 'paces'] ~= paces then
  local known_, least_, latest_, memory_ = P .. 'known', P .. 'least', P .. 'latest', P .. 'memory'
  if st[P .. 'paces'] and load(P .. 'arrived') > 0 then
    if now - load(least_) >= load(latest_) then st[known_], st[least_] = dec(load(latest_)), dec(load(memory_)) end
    st[least_], st[latest_] = dec(min(load(least_), load(memory_))), dec(coarse(max(now, load(P .. 'arrived'))))
  else
    st[least_] = dec(memory)
  end
  st[P .. 'paces'], st[memory_] = paces, dec(memory)
end
if load_limits(now) == 'stale' then return {'stale', dec(now - behind)} end
-- A quota that did not see the last ask was not in the rules then. One of a version that did not note it did, if it is there at all.
local function missed(l)
  if not sums or not existed or l.kind == 'r' or l.kind == 'i' then return false end
  local n = st[l.name .. ':n']
  if n then return tonumber(n) ~= (l.all and counted or counted_own) end
  return not st[l.name .. ':k']
end
for _, l in ipairs(L) do
  local lost = lost or gone and not l.all
  local partial = not lost and missed(l)
  if lost or partial then
    local quota = l.kind == 's' or l.kind == 'q' or l.kind == 'f'
    if quota and (lost or st[l.name .. ':x'] ~= '1') then st[l.name .. ':x'] = lost and '1' or '2' end
    if quota then save(l.name .. ':x', st[l.name .. ':x']) end
    if l.kind == 'r' then
      l.t, l.r, l.last = max(l.t, now + far + ceildiv(l.burst * l.p, l.q)), 0, 0
      l.since = coarse(arrived(l))
      l.marks = {{(load('asked') + 1) * WANT, 0}}
    elseif l.kind == 's' then
      M.s.take(l, now + far, max(0, l.cap - l.sum))
    elseif l.kind ~= 'i' then
      local s, e = period(l, now + far)
      begin(l, s or l.bounds[3], e or l.bounds[4])
      l.u, l.final = l.cap, now + far
    end
  end
end
local function under_way(set)
  redis.call('ZREMRANGEBYSCORE', set, '-inf', dec(now))
  return redis.call('ZCARD', set)
end
if all or n_own > 0 then open = under_way(KEYS[2]) end
if all then open_all = under_way(KEYS[3]) end
local out = {'ok', st.epoch, '', dec(now), st.behind}
if mode == 'settle' then
  settle(now, all)
elseif awaited then
  out[1], out[6] = 'awaits', awaited
elseif mode == 'reserve' then
  reserve(now, lease, far, memory, jitter, all, out)
elseif mode == 'seed' then
  seed(now)
end
out[3] = st.asked
save('asked', st.asked) save('clock', st.clock) save('behind', st.behind)
for _, f in ipairs({'paces', 'memory', 'least', 'known', 'latest', 'arrived', 'lease'}) do
  if st[P .. f] then save(P .. f, st[P .. f]) end
end
if all then
  if not left then save(P .. 'asked', st.asked) save(P .. 'loss', st.loss or '') end
  if st.arrived then save('arrived', st.arrived) end
  if st.lease then save('lease', st.lease) end
end
for _, l in ipairs(L) do
  if sums and l.kind ~= 'r' and l.kind ~= 'i' then save(l.name .. ':n', st.asked) end
end
save_limits()
redis.call('HSET', KEYS[1], unpack(dirty))
for _, l in ipairs(L) do
  if l.kind == 's' then redis.call('PEXPIRE', l.log, dec(ceildiv(l.per + far, 1000) + 60000)) end
end
return out
`
