package redisstore

// luaMeters is bucket's meter.go, quota.go and sliding.go.
const luaMeters = `
local st, dirty, L, n_limits, open, open_all, P = {}, {}, {}, 0, 0, 0, ''
local function load(field) return tonumber(st[field] or 0) end
local function arrived(l) if l.all then return load('arrived') end return load(P .. 'arrived') end
local function open_of(l) if l.all then return open_all end return open end
local function save(field, v) dirty[#dirty + 1] = field; dirty[#dirty + 1] = v end

-- rate
local M = {}
M.r = {}
function M.r.earliest(l, at, cost) return g_slot(l, at, l.burst, cost) end
local function mark(l, serial, slack)
  local m = l.marks
  while #m > 0 and m[#m][2] >= slack do m[#m] = nil end
  if #m > 0 and m[#m][1] == serial then return end
  m[#m + 1] = {serial, slack}
  if #m > KEEP.MARKS then m[2][2] = m[1][2]; table.remove(m, 1) end
end
function M.r.take(l, at, cost, serial)
  mark(l, serial, max(0, l.t - at))
  g_take(l, at, cost)
  l.last = serial
end
local function refund(l, serial, units)
  local r = (units * l.p - units * l.p % l.q) / l.q
  for _, k in ipairs(l.marks) do
    if k[1] > serial then r = min(r, k[2]) break end
  end
  l.t = l.t - r
  local least, kept = MAX, {}
  for i = #l.marks, 1, -1 do
    local k = l.marks[i]
    if k[1] > serial then k[2] = k[2] - r end
    if k[2] < least then least = k[2]; table.insert(kept, 1, k) end
  end
  l.marks = kept
end
function M.r.give_back(l, at, cost, serial)
  if l.last ~= serial then return refund(l, serial, cost) end
  g_untake(l, cost)
  l.last = before(serial)
end
function M.r.correct(l, now, at, cost, actual, serial)
  if actual > cost then
    local newest = l.marks[#l.marks] or {0, 0}
    mark(l, max(newest[1], l.last + 1), max(0, l.t - now))
    local extra = math.ceil(min(MAX, (actual - cost) * (l.p / l.q))) + 1
    l.t, l.last = min(MAX, max(now, l.t) + extra), 0
  elseif actual < cost then
    refund(l, serial, cost - actual)
  end
end

-- quota: calendar periods come as bounds from the caller, fixed ones are computed
local behind = 0 -- by how much the calendar is behind the clock that slots go by
local function calendar(l, at)
  if l.kind == 'f' then
    local s = at - (at - behind) % l.per
    return s, s + l.per
  end
  for i = 1, #l.bounds - 1 do
    if at >= l.bounds[i] and at < l.bounds[i + 1] then return l.bounds[i], l.bounds[i + 1] end
  end
end
local function period(l, at)
  if l.s <= at and at < l.e then return l.s, l.e end
  return calendar(l, at)
end
-- turnback.go: others are {s, e, used, last}, rising
local function used_in(l, s)
  if s == l.s then return l.u end
  for _, o in ipairs(l.others) do
    if o[1] == s then return o[3] end
  end
  return 0
end
local function take_later(l, units)
  for _, o in ipairs(l.others) do
    if o[1] > l.s then o[3] = min(MAX, o[3] + units) end
  end
end
local function forget(l, s)
  local kept, used, last = {}, 0, 0
  for _, o in ipairs(l.others) do
    if o[1] == s then used, last = o[3], o[4] else kept[#kept + 1] = o end
  end
  l.others = kept
  return used, last
end
local function remember(l)
  if l.e == 0 then return end
  forget(l, l.s)
  table.insert(l.others, {l.s, l.e, l.u, l.final})
  table.sort(l.others, function(a, b) return a[1] < b[1] end)
  if #l.others > KEEP.PERIODS then table.remove(l.others, 1) end
end
local function begin(l, s, e)
  remember(l)
  local used, last = forget(l, s)
  l.s, l.e, l.u, l.final = s, e, used, last
end
local function turn_back(l, now)
  if l.s <= now + KEEP.EARLY then return end
  local used, last = l.u, l.final
  local s, e = calendar(l, now)
  for _, o in ipairs(l.others) do
    if o[1] == s or o[4] + l.per > now then used, last = used + o[3], max(last, o[4]) end
  end
  remember(l)
  forget(l, s)
  e = max(e, now + l.per)
  for _, o in ipairs(l.others) do
    if o[1] > s then e = min(e, o[1]) end
  end
  l.s, l.e, l.u, l.final = s, e, min(MAX, used), last
end
M.q = {}
function M.q.earliest(l, at, cost)
  at = max(at, l.s)
  while true do
    local s, e = period(l, at)
    if not s then return at end -- beyond the bounds, and so beyond reach
    at = max(at, s + l.guard)
    if at < e - l.guard and used_in(l, s) + cost <= l.cap then return at end
    at = e
  end
end
function M.q.spent(l, from, to, cost)
  while from < to do
    local s, e = period(l, from)
    if not s then return false end
    if used_in(l, s) + cost > l.cap then return true end
    from = e
  end
  return false
end
function M.q.take(l, at, cost)
  local s, e = period(l, at)
  if s ~= l.s or e ~= l.e then begin(l, s, e) end
  l.u, l.final = l.u + cost, max(l.final, at)
  take_later(l, cost)
end
function M.q.give_back(l, at, cost)
  if l.s <= at and at < l.e then l.u = max(0, l.u - cost) end
end
function M.q.correct(l, now, at, cost, actual)
  if actual < cost then return M.q.give_back(l, at, cost - actual) end
  if now >= l.e then begin(l, period(l, now)) end
  l.u, l.final = min(MAX, l.u + actual - cost), max(l.final, now)
  take_later(l, actual - cost)
end
M.f = M.q

-- sliding: the log is a list of start:end:units. Of as many of its first entries as were read since it was changed,
-- ends has the ends, and sums the units of each and all before it. A round of asks that are refused reads it once.
local function entry(s)
  local a, b, c = string.match(s, '(%d+):(%d+):(%d+)')
  return tonumber(a), tonumber(b), tonumber(c)
end
local function write(s, e, units) return dec(s) .. ':' .. dec(e) .. ':' .. dec(units) end
local function changed(l) l.ends, l.sums = {}, {} end
local function read(l)
  local n = #l.ends
  for i, v in ipairs(redis.call('LRANGE', l.log, n, n + 63)) do
    local _, e, units = entry(v)
    l.ends[n + i], l.sums[n + i] = e, (l.sums[n + i - 1] or 0) + units
  end
  return #l.ends > n
end
M.s = {}
function M.s.advance(l, now)
  while true do
    local head = redis.call('LINDEX', l.log, 0)
    if not head then
      if l.sum > 0 then l.freed, l.sum, l.gone = l.freed + l.sum, 0, arrived(l) end -- the log expired
      return
    end
    local _, e, units = entry(head)
    if e + l.per > now then return end
    redis.call('LPOP', l.log)
    l.freed, l.sum, l.gone = l.freed + units, l.sum - units, max(l.gone, e)
  end
end
function M.s.earliest(l, at, cost)
  local short = cost - (l.cap - l.sum)
  if short <= 0 then return at end
  while (l.sums[#l.sums] or 0) < short do
    if not read(l) then return at + l.per end -- the log was lost without its sum: wait it out
  end
  local first, last = 1, #l.sums
  while first < last do
    local middle = math.floor((first + last) / 2)
    if l.sums[middle] >= short then last = middle else first = middle + 1 end
  end
  return max(at, l.ends[first] + l.per)
end
function M.s.take(l, at, cost)
  if cost == 0 then return end
  l.sum = l.sum + cost
  changed(l)
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
  if at <= l.gone then return end
  -- the first entry that ends at or after the slot lies from first on, and before last
  local first, last = 0, redis.call('LLEN', l.log)
  local size = last
  while first < last do
    local middle = math.floor((first + last) / 2)
    local _, e = entry(redis.call('LINDEX', l.log, middle))
    if e >= at then last = middle else first = middle + 1 end
  end
  if first == size then return end
  local s, e, units = entry(redis.call('LINDEX', l.log, first))
  cost = min(cost, units)
  changed(l)
  l.sum = l.sum - cost
  if cost < units then
    redis.call('LSET', l.log, first, write(s, e, units - cost))
  else -- a list has no delete by position
    redis.call('LSET', l.log, first, '')
    redis.call('LREM', l.log, first < size / 2 and 1 or -1, '')
  end
end
function M.s.correct(l, now, at, cost, actual)
  if actual < cost then return M.s.give_back(l, at, cost - actual) end
  M.s.take(l, now, min(MAX - l.sum, actual - cost))
end
`
