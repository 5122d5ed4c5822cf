package redisstore

import "github.com/redis/go-redis/v9"

// One script does everything, so that a reservation reads and writes all its limits in one step of the server, and there
// is one place where the arithmetic of package bucket is repeated. It follows bucket's engine.go, gcra.go, meter.go,
// quota.go, sliding.go and concurrency.go line by line; the names are theirs, and a differential test holds the two to
// the same grants.
//
// KEYS are the api's state, its open grants, the log of each shared limit (used by sliding ones), and then the bucket of
// each key asked for. ARGV is flat: see request.go. Everything is answered as decimal strings, because a Lua number
// that becomes a reply loses its fraction and one that becomes a string may gain an exponent.
//
// Numbers are doubles: every product stays below 2^53, which bucket.Rules.Validate sees to, so all of this is exact.
var script = redis.NewScript(luaCore + luaMeters + luaReserve + luaSettle + luaMain)

const luaCore = `
local MAX, WANT = 9007199254740991, 64
local KEEP = {MARKS = 16, ENTRIES = 1024, RECENT = 64}
local pos = 0
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
  if g.t >= now then base, rem = g.t, g.r end
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
local function g_rescale(g, now, p, q)
  if g.p == p and g.q == q then return false end
  if g.t < now or g.t == now and g.r == 0 then
    g.r = 0
  else
    local scaled = (g.t - now + 1) * (p / q) / (g.p / g.q)
    g.t, g.r = min(MAX, now + math.ceil(scaled) + 1), 0
  end
  g.p, g.q = p, q
  return true
end
`

const luaMeters = `
local st, dirty, L, n_limits = {}, {}, {}, 0
local function load(field) return tonumber(st[field] or 0) end
local function save(field, v) dirty[#dirty + 1] = field; dirty[#dirty + 1] = v end

-- rate
local M = {}
M.r = {}
function M.r.earliest(l, at, cost) return g_slot(l, at, l.burst, cost) end
function M.r.take(l, at, cost, serial)
  if l.settles then
    local slack, m = max(0, l.t - at), l.marks
    while #m > 0 and m[#m][2] >= slack do m[#m] = nil end
    m[#m + 1] = {serial, slack}
    if #m > KEEP.MARKS then m[2][2] = m[1][2]; table.remove(m, 1) end
  end
  g_take(l, at, cost)
  l.last = serial
end
local function refund(l, serial, units)
  local r = (units * l.p - units * l.p % l.q) / l.q
  for _, k in ipairs(l.marks) do
    if k[1] > serial then r = min(r, k[2]) break end
  end
  l.t, l.last = l.t - r, 0
  local least, kept = MAX, {}
  for i = #l.marks, 1, -1 do
    local k = l.marks[i]
    if k[1] > serial then k[2] = k[2] - r end
    if k[2] < least then least = k[2]; table.insert(kept, 1, k) end
  end
  l.marks = kept
end
function M.r.give_back(l, at, cost, serial)
  if l.settles then
    refund(l, serial, cost)
  elseif l.last == serial then
    g_untake(l, cost)
    l.last = before(serial)
  end
end
function M.r.correct(l, now, at, cost, actual, serial)
  if actual > cost then
    local extra = math.ceil(min(MAX, (actual - cost) * (l.p / l.q))) + 1
    l.t, l.last = min(MAX, max(now, l.t) + extra), 0
  elseif actual < cost and l.settles then
    refund(l, serial, cost - actual)
  end
end

-- quota: calendar periods come as bounds from the caller, fixed ones are computed
local function period(l, at)
  if l.kind == 'f' then
    local s = at - at % l.per
    return s, s + l.per
  end
  for i = 1, #l.bounds - 1 do
    if at >= l.bounds[i] and at < l.bounds[i + 1] then return l.bounds[i], l.bounds[i + 1] end
  end
end
M.q = {}
function M.q.earliest(l, at, cost)
  at = max(at, l.s)
  while true do
    local s, e = period(l, at)
    if not s then return at end -- beyond the bounds, and so beyond reach
    at = max(at, s + l.guard)
    if at < e - l.guard and not (s == l.s and e == l.e and l.u + cost > l.cap) then return at end
    at = e
  end
end
function M.q.take(l, at, cost)
  local s, e = period(l, at)
  if s ~= l.s or e ~= l.e then l.s, l.e, l.u = s, e, 0 end
  l.u = l.u + cost
end
function M.q.give_back(l, at, cost)
  if l.s <= at and at < l.e then l.u = max(0, l.u - cost) end
end
function M.q.correct(l, now, at, cost, actual)
  if actual < cost then return M.q.give_back(l, at, cost - actual) end
  if now >= l.e then
    l.s, l.e = period(l, now)
    l.u = 0
  end
  l.u = min(MAX, l.u + actual - cost)
end
M.f = M.q

-- sliding: the log is a list of start:end:units
local function entry(s)
  local a, b, c = string.match(s, '(%d+):(%d+):(%d+)')
  return tonumber(a), tonumber(b), tonumber(c)
end
local function write(s, e, units) return dec(s) .. ':' .. dec(e) .. ':' .. dec(units) end
M.s = {}
function M.s.advance(l, now)
  while true do
    local head = redis.call('LINDEX', l.log, 0)
    if not head then l.sum = 0 return end
    local _, e, units = entry(head)
    if e + l.per > now then return end
    redis.call('LPOP', l.log)
    l.sum = l.sum - units
  end
end
function M.s.earliest(l, at, cost)
  local free, i = l.cap - l.sum, 0
  while free < cost do
    local v = redis.call('LINDEX', l.log, i)
    if not v then return at + l.per end -- the log was lost without its sum: wait it out
    local _, e, units = entry(v)
    at = max(at, e + l.per)
    free, i = free + units, i + 1
  end
  return at
end
function M.s.take(l, at, cost)
  l.sum = l.sum + cost
  local newest = redis.call('LINDEX', l.log, -1)
  if newest then
    local s, e, units = entry(newest)
    at = max(at, e)
    if at - s < l.grain then
      redis.call('LSET', l.log, -1, write(s, at, units + cost))
      return
    end
  end
  redis.call('RPUSH', l.log, write(at, at, cost))
end
function M.s.give_back(l, at, cost)
  local from = max(0, redis.call('LLEN', l.log) - KEEP.RECENT)
  for i, v in ipairs(redis.call('LRANGE', l.log, -KEEP.RECENT, -1)) do
    local s, e, units = entry(v)
    if e >= at then
      if i == 1 and from > 0 then return end
      cost = min(cost, units)
      redis.call('LSET', l.log, from + i - 1, write(s, e, units - cost))
      l.sum = l.sum - cost
      return
    end
  end
end
function M.s.correct(l, now, at, cost, actual)
  if actual < cost then return M.s.give_back(l, at, cost - actual) end
  M.s.take(l, now, min(MAX - l.sum, actual - cost))
end
`

const luaReserve = `
local function load_limits(now)
  n_limits = num()
  for i = 1, n_limits do
    local l = {name = str(), kind = str(), shadow = num() == 1, cap = num(), burst = num(), settles = num() == 1,
      guard = num(), per = num(), grain = num(), sign = str(), bounds = {}, log = KEYS[2 + i]}
    local p, q = num(), num()
    for b = 1, num() do l.bounds[b] = num() end
    local f = l.name .. ':'
    l.meter = M[l.kind]
    if l.kind == 'r' then
      l.t, l.r, l.last, l.marks = load(f .. 't'), load(f .. 'r'), load(f .. 'l'), {}
      l.p, l.q = tonumber(st[f .. 'p'] or p), tonumber(st[f .. 'q'] or q)
      for a, b in string.gmatch(st[f .. 'm'] or '', '(%d+):(%d+)') do
        l.marks[#l.marks + 1] = {tonumber(a), tonumber(b)}
      end
      if g_rescale(l, now, p, q) then l.last, l.marks = 0, {{(load('asked') + 1) * WANT, 0}} end
    elseif l.kind == 's' then
      l.sum = load(f .. 'sum')
    elseif l.kind ~= 'i' then
      l.s, l.e, l.u = load(f .. 's'), load(f .. 'e'), load(f .. 'u')
      l.same = st[f .. 'd'] == l.sign
      if l.kind == 'q' and (now < l.bounds[1] or now >= l.bounds[3]) then return 'stale' end
    end
    l.held = load(f .. 'h')
    L[i] = l
  end
  for _, l in ipairs(L) do
    if l.kind == 's' then
      M.s.advance(l, now)
    elseif (l.kind == 'q' or l.kind == 'f') and l.e > now and not l.same then
      l.s, l.e = period(l, max(now, l.s))
    end
  end
  return 'ready'
end
local function save_limits()
  for _, l in ipairs(L) do
    local f = l.name .. ':'
    if l.kind == 'r' then
      save(f .. 't', dec(l.t)) save(f .. 'r', dec(l.r)) save(f .. 'l', dec(l.last))
      save(f .. 'p', dec(l.p)) save(f .. 'q', dec(l.q))
      if l.settles then
        local m = {}
        for i, k in ipairs(l.marks) do m[i] = dec(k[1]) .. ':' .. dec(k[2]) end
        save(f .. 'm', table.concat(m, ','))
      end
    elseif l.kind == 's' then
      save(f .. 'sum', dec(l.sum))
    elseif l.kind ~= 'i' then
      save(f .. 's', dec(l.s)) save(f .. 'e', dec(l.e)) save(f .. 'u', dec(l.u)) save(f .. 'd', l.sign)
    end
    if l.shadow then save(f .. 'h', dec(l.held)) end
  end
end

-- the bucket of one key: "tat rem p q last"
local function load_key(name, now, p, q, lost)
  local v = redis.call('GET', name)
  local k
  if v then
    local t, r, kp, kq, last = string.match(v, '(%d+) (%d+) (%d+) (%d+) (%d+)')
    k = {t = tonumber(t), r = tonumber(r), p = tonumber(kp), q = tonumber(kq), last = tonumber(last)}
  else
    k = {t = 0, r = 0, p = p, q = q, last = 0}
  end
  if lost > k.t and k.last < load('coldserial') then k.t, k.r, k.last = lost, 0, 0 end
  return k
end
local function packed(k)
  return dec(k.t) .. ' ' .. dec(k.r) .. ' ' .. dec(k.p) .. ' ' .. dec(k.q) .. ' ' .. dec(k.last)
end
-- an entry lives until its bucket is empty, and a burst and a second longer: one that expired in debt would come back full
local function save_key(name, k, now, burst)
  local ttl = ceildiv(max(0, k.t - now) + ceildiv(burst * k.p, k.q), 1000) + 1000
  redis.call('SET', name, packed(k), 'PX', dec(ttl))
end

local open = 0
local function would_hold(l, at, cost)
  if l.kind == 'i' then return open >= l.burst end
  return cost > l.cap or cost > 0 and l.meter.earliest(l, at, cost) > at
end
-- returns the slot, or nil, the number of the binding limit (0: the key's own), until, and 1 for never
local function slot(now, k, a, blind)
  for i, l in ipairs(L) do
    if a.costs[i] > l.cap and not l.shadow then return nil, i, 0, 1 end
  end
  local reach = now + a.horizon
  for _, l in ipairs(L) do
    if l.kind == 'q' then reach = min(reach, l.bounds[#l.bounds] - 1) end
  end
  local at, binding, moved = g_slot(k, now, a.burst, 1), 0, true
  while moved and at <= reach do
    moved = false
    for i, l in ipairs(L) do
      if l.kind ~= 'i' and not l.shadow and a.costs[i] > 0 then
        local s = l.meter.earliest(l, at, a.costs[i])
        if s > at then at, binding, moved = s, i, true end
      end
    end
  end
  if at > reach then return nil, binding, max(now + 1, at - a.horizon), 0 end
  for i, l in ipairs(L) do
    if l.kind == 'i' and not l.shadow and (open >= l.burst or now < blind) then return nil, i, now + 5000, 0 end
  end
  return at
end
local function commit(at, serial, k, a, lease)
  g_take(k, at, 1)
  k.last = serial
  for i, l in ipairs(L) do
    local cost = a.costs[i]
    if l.shadow and would_hold(l, at, cost) then
      l.held = l.held + 1
    elseif l.kind ~= 'i' and cost > 0 then
      l.meter.take(l, at, cost, serial)
    end
  end
  if n_limits > 0 then
    local e = max(at + lease, load('lease'))
    st.lease = dec(e)
    redis.call('ZADD', KEYS[2], dec(e), dec(serial))
    open = open + 1
  end
end
local function reserve(now, lease, out)
  local asked, n = load('asked'), num()
  for j = 1, n do
    local p, q = num(), num()
    local a = {burst = num(), horizon = num(), want = num(), costs = {}}
    local floor = num()
    for i = 1, n_limits do a.costs[i] = num() end
    local name, lost, blind = KEYS[2 + n_limits + j], 0, 0
    if st.cold then
      lost = load('cold') + a.horizon + ceildiv(a.burst * p, q)
      blind = load('cold') + a.horizon + lease
    end
    local k = load_key(name, now, p, q, lost)
    if g_rescale(k, now, p, q) then k.last = 0 end
    if floor > g_end(k) then k.t, k.r, k.last = min(floor, MAX), 0, 0 end
    asked = asked + 1
    local count_at = #out + 1
    out[count_at] = '0'
    local binding, till, never = -1, 0, 0
    for i = 0, a.want - 1 do
      local at, b, u, nv = slot(now, k, a, blind)
      if not at then binding, till, never = b, u, nv break end
      local serial = asked * WANT + i
      commit(at, serial, k, a, lease)
      out[count_at] = dec(i + 1)
      out[#out + 1] = dec(at) out[#out + 1] = dec(g_end(k)) out[#out + 1] = dec(serial)
    end
    out[#out + 1] = dec(binding) out[#out + 1] = dec(till) out[#out + 1] = dec(never)
    save_key(name, k, now, a.burst)
  end
  st.asked = dec(asked)
end
`

const luaSettle = `
local function settle(now)
  for j = 1, num() do
    local serial, at, returned = num(), num(), num() == 1
    local name = KEYS[2 + n_limits + j]
    if returned and redis.call('EXISTS', name) == 1 then
      local k = load_key(name, now, 1, 1, 0)
      if serial > 0 and k.last == serial then
        g_untake(k, 1)
        k.last = before(serial)
        redis.call('SET', name, packed(k), 'KEEPTTL')
      end
    end
    local was_open = n_limits > 0 and redis.call('ZREM', KEYS[2], dec(serial)) == 1
    for i = 1, n_limits do
      local l, cost, actual = L[i], num(), num() -- -1: not placed, not known
      if l.kind ~= 'i' and not l.shadow and cost >= 0 then
        if returned then
          if was_open then l.meter.give_back(l, at, cost, serial) end
        elseif actual >= 0 and (actual > cost or was_open) then
          l.meter.correct(l, now, at, cost, actual, serial)
        end
      end
    end
  end
end
`

const luaMain = `
local mode, injected, known, fresh_id, seen, lease, far = str(), str(), str(), str(), num(), num(), num()
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if injected ~= '' then now = tonumber(injected) end
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do st[flat[i]] = flat[i + 1] end
now = max(now, load('clock'))

-- A state that is missing, of an earlier epoch than the caller knows, or of the same with fewer asks counted than the
-- caller has seen, was lost: what is not known counts as used up. A later epoch is a loss that somebody else has noticed.
local function born(epoch) return tonumber(string.match(epoch or '', '^(%d+)%.') or 0) end
local lost = known ~= 'fresh'
if st.epoch then
  lost = born(st.epoch) < born(known) or st.epoch == known and load('asked') < seen
end
if lost or not st.epoch then
  st.epoch = dec(max(now, born(known) + 1)) .. '.' .. fresh_id
  -- serials begin above all that were given before: fewer than one ask in 32 us on the average
  st.asked = dec(max(max(load('asked'), seen) + 1, math.floor(now / 32)))
  save('epoch', st.epoch)
end
if lost then
  st.cold, st.coldserial = dec(now), dec(load('asked') * WANT)
  save('cold', st.cold) save('coldserial', st.coldserial)
end
st.clock = dec(now)
if load_limits(now) == 'stale' then return {'stale', dec(now)} end
for _, l in ipairs(L) do
  if lost then
    if l.kind == 'r' then
      l.t, l.r, l.last = max(l.t, now + far + ceildiv(l.burst * l.p, l.q)), 0, 0
      l.marks = {{(load('asked') + 1) * WANT, 0}}
    elseif l.kind == 's' then
      M.s.take(l, now + far, max(0, l.cap - l.sum))
    elseif l.kind ~= 'i' then
      local s, e = period(l, now + far)
      l.s, l.e, l.u = s or l.bounds[3], e or l.bounds[4], l.cap
    end
  end
end
if n_limits > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', dec(now))
  open = redis.call('ZCARD', KEYS[2])
end
local out = {'ok', st.epoch, '', dec(now)}
if mode == 'reserve' then reserve(now, lease, out) else settle(now) end
out[3] = st.asked
save('asked', st.asked) save('clock', st.clock)
if st.lease then save('lease', st.lease) end
save_limits()
redis.call('HSET', KEYS[1], unpack(dirty))
for _, l in ipairs(L) do
  if l.kind == 's' then redis.call('PEXPIRE', l.log, dec(ceildiv(l.per + far, 1000) + 60000)) end
end
return out
`
