package redisstore

// luaMeters is bucket's meter.go, quota.go and sliding.go.
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
  l.front, l.last = max(l.front, at), serial
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
