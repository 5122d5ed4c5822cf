package redisstore

// luaLeft is bucket's left.go. Every limit has taken, the units of all grants so far, and its excess x: units, till
// when, room and serial. They are kept as xn, xu, xt, xr and xs, and xk says whether the limit was a rate, a sliding
// quota or one with periods. left is the limit's period if answers say what is left of it, and 0 if none does: such a
// limit has no excess and counts no grants. slack is how much less than counted may be left without any.
const luaLeft = `
local function x_kind(l) return l.kind == 'f' and 'q' or l.kind end
local function x_load(l)
  local f = l.name .. ':'
  l.taken, l.x = 0, {units = 0, till = 0, room = 0, serial = 0}
  if l.left == 0 then return end
  l.taken, l.x.serial = load(f .. 'xn'), load(f .. 'xs')
  if st[f .. 'xk'] == x_kind(l) then
    l.x.units, l.x.till, l.x.room = load(f .. 'xu'), load(f .. 'xt'), load(f .. 'xr')
  end
end
local function x_save(l)
  local f = l.name .. ':'
  if l.left == 0 then return end
  save(f .. 'xn', dec(l.taken)) save(f .. 'xs', dec(l.x.serial)) save(f .. 'xk', x_kind(l))
  save(f .. 'xu', dec(l.x.units)) save(f .. 'xt', dec(l.x.till)) save(f .. 'xr', dec(l.x.room))
end
local function x_take(l, at, units)
  if at < l.x.till then l.x.room = l.x.room - units end
end
local function x_give_back(l, serial, at, units)
  if serial > l.x.serial then x_take(l, at, -units) end
end
local function x_short(l, now, reach, units) return now < l.x.till and reach < l.x.till and units > l.x.room end
local function x_ends(l, now, at) return now < l.x.till and at == l.x.till end
local function earliest(l, at, cost)
  local s, x = l.meter.earliest(l, at, cost), l.x
  if s >= x.till then return s end
  if l.kind ~= 's' then
    if cost <= x.room then return s end
  elseif cost + x.units <= l.cap then
    return min(x.till, l.meter.earliest(l, s, cost + x.units))
  end
  return x.till
end
local function x_free(l, now, at, s, till, since, window)
  if l.kind == 's' then return max(0, l.cap - window - since) end
  if l.kind ~= 'r' then return max(0, l.cap - used_in(l, s)) end
  local each = l.p / l.q
  if till > 0 and l.window > 0 then
    local n = (min(till, now + l.left) - max(now, l.t)) / each - 1e-6
    return max(0, l.burst + math.ceil(max(-2 ^ 52, n)) - 1)
  end
  return max(0, l.burst - math.ceil(min(2 ^ 52, max(0, l.t - at) / each - 1e-6)))
end
local function x_heed(l, now, serial, at, units, till, least, taken, window)
  local x, since = l.x, l.taken - taken
  if serial <= x.serial or since < 0 then return end
  local s, ends, last = 0, at + l.left, max(now, at) + l.left
  if l.kind == 'q' or l.kind == 'f' then
    s, ends = period(l, now)
    if not s or at < s or at >= ends then return end
    last = max(last, ends)
  end
  if till > 0 then ends = min(till, last) end
  if ends <= now then return end
  x.serial = serial
  local begun = now < x.till
  if not begun then till = min(till, least) end
  local free = x_free(l, now, at, s, till, since, window)
  if free <= units + l.slack and (not begun or free + since <= units + l.slack) then
    x.units, x.till, x.room = 0, 0, 0
    return
  end
  x.units, x.till, x.room = free + since - units, ends, units - since
end
`
