package redisstore

// luaLeft is bucket's left.go. Every limit has taken and freed, which count units of grants, and its excess x: units,
// till when, room and serial. The state has them as xn, xf, xu, xt, xr and xs, and of as xk. of is
// bucket.Limit.LeftSign: if it has changed since the last request, the excess has ended. left is the limit's period. It
// is 0 if no answer says what is left of the limit; of is then empty, and nothing is stored. slack is how much less
// than weir's count an answer may say without an excess.
const luaLeft = `
local function x_load(l)
  local f = l.name .. ':'
  l.taken, l.freed = load(f .. 'xn'), load(f .. 'xf')
  l.x = {units = 0, till = 0, room = 0, serial = load('asked') * WANT + WANT - 1}
  if l.left > 0 and st[f .. 'xk'] == l.of then
    l.x = {units = load(f .. 'xu'), till = load(f .. 'xt'), room = load(f .. 'xr'), serial = load(f .. 'xs')}
  end
end
local function x_save(l)
  local f = l.name .. ':'
  if (st[f .. 'xk'] or '') ~= l.of then save(f .. 'xk', l.of) end
  if l.left == 0 then return end
  save(f .. 'xn', dec(l.taken)) save(f .. 'xf', dec(l.freed)) save(f .. 'xs', dec(l.x.serial))
  save(f .. 'xu', dec(l.x.units)) save(f .. 'xt', dec(l.x.till)) save(f .. 'xr', dec(l.x.room))
end
local function x_take(l, at, units)
  if at < l.x.till then l.x.room = l.x.room - units end
end
local function x_gave_back(l, serial, at, units)
  l.freed = l.freed + max(0, units)
  if serial > l.x.serial then x_take(l, at, -units) end
end
local function x_short(l, now, reach, units) return now < l.x.till and reach < l.x.till and units > l.x.room end
local function x_holds(l, now, at)
  if now < l.x.till and at == l.x.till then return l.x.units end
  return 0
end
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
local function x_free(l, now, at, s, till)
  if l.kind == 's' then return l.cap - l.sum end
  if l.kind ~= 'r' then return l.cap - used_in(l, s) end
  local each = l.p / l.q
  if till ~= 0 and l.window > 0 then
    if till <= now then return 0 end
    local n = (till - max(now, l.t)) / each - 1e-6
    return max(0, l.burst + math.ceil(max(-2 ^ 52, n)) - 1)
  end
  return max(0, l.burst - math.ceil(min(2 ^ 52, max(0, l.t - at) / each - 1e-6)))
end
local function x_heed(l, now, serial, at, units, till, least, taken, freed)
  local x, since, gone = l.x, l.taken - taken, l.freed - freed
  if serial <= x.serial or since < 0 or gone < 0 then return end
  local s, ends = 0, at + l.left
  if l.kind == 'q' or l.kind == 'f' then
    s, ends = period(l, now)
    if not s or at < s or at >= ends then return end
  end
  if till ~= 0 then ends = min(till, max(ends, now + l.left)) end
  if ends <= now then return end
  x.serial = serial
  local begun, told = now < x.till, min(till, ends)
  if not begun then told = min(told, least) end
  local free = max(0, x_free(l, now, at, s, told) - gone)
  local over = free
  if begun then over = over + since end
  if over <= units + l.slack then
    x.units, x.till, x.room = 0, 0, 0
    return
  end
  x.units, x.till, x.room = free + since - units, ends, units - since
end
`
