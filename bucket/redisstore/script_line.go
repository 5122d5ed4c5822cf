package redisstore

// luaLine is bucket's line.go. What the replicas said is one field of the state, lines: the virtual time of the replica
// that was granted a slot last, and then for each replica, separated by |, its name, virtual time, seen, due, kept,
// horizon, more, and each tenant with its number of keys. It is empty while no replica waits.
const luaLine = `
local LINE = {REPLICAS = 64, GONE = 1000000, LATE = 5000, POLL = 100, DEAR = 500000}
local lines = {clock = 0, all = {}, calls = 0, weights = 0, due = 0}
local function line_late(s) return s.due + s.horizon + LINE.LATE end
local function line_weigh()
  lines.keys, lines.calls, lines.weights = {}, 0, 0
  for _, s in ipairs(lines.all) do
    for _, t in ipairs(s.due ~= 0 and s.tenants or {}) do lines.keys[t[1]] = (lines.keys[t[1]] or 0) + t[2] end
  end
  for _, s in ipairs(lines.all) do
    if s.due ~= 0 then
      s.keys, s.weight = s.more, s.more
      for _, t in ipairs(s.tenants) do
        s.keys = s.keys + t[2]
        s.weight = s.weight + t[2] / lines.keys[t[1]]
      end
      if s.keys == 0 then s.keys, s.weight = 1, 1 end
      lines.calls = lines.calls + s.keys
      lines.weights = lines.weights + s.weight
    end
  end
end
local function line_begin(now, replica, horizon, more, tenants)
  local all = {}
  for v in string.gmatch(st.lines or '', '[^|]+') do
    local w = {}
    for x in string.gmatch(v, '%S+') do w[#w + 1] = x end
    if #w == 1 then
      lines.clock = tonumber(w[1])
    else
      local s = {replica = w[1], taken = tonumber(w[2]), seen = tonumber(w[3]), due = tonumber(w[4]), kept = tonumber(w[5]),
        horizon = tonumber(w[6]), more = tonumber(w[7]), tenants = {}}
      for i = 8, #w, 2 do s.tenants[#s.tenants + 1] = {w[i], tonumber(w[i + 1])} end
      if now <= max(s.seen, s.due) + LINE.GONE then all[#all + 1] = s end
    end
  end
  local own
  for _, s in ipairs(all) do if s.replica == replica then own = s end end
  if not own then
    if #all == LINE.REPLICAS then
      local oldest = 1
      for i, s in ipairs(all) do if s.seen < all[oldest].seen then oldest = i end end
      table.remove(all, oldest)
    end
    own = {replica = replica, taken = 0, due = 0}
    all[#all + 1] = own
  end
  if own.due == 0 then own.taken = max(own.taken, lines.clock) end
  own.seen, own.due, own.horizon, own.tenants, own.more = now, now, horizon, tenants, more
  lines.all, lines.own, lines.due, lines.kept = all, own, 0, 0
  line_weigh()
end
local function line_elsewhere(tenant)
  local t = lines.own and lines.own.tenants[tenant]
  if not t then return 0 end
  return lines.keys[t[1]] - t[2]
end
local function line_competes(s, now, slot) return s.due ~= 0 and now <= line_late(s) and (s.kept > 0 or s.due <= slot) end
local function line_before(now, slot, from, service)
  local own, ahead, first, last, dear = lines.own, 0, MAX, 0, false
  local each = service / own.weight
  local slack = min(own.horizon / lines.weights, (own.keys - 1) / 2 * each)
  for _, s in ipairs(lines.all) do
    if s ~= own and line_competes(s, now, slot) then
      local lead = own.taken - slack - s.taken
      if lead > each / 1024 then
        ahead = ahead + lead * s.weight
        first, last, dear = min(first, s.due), max(last, line_late(s) + 1), dear or s.kept == 2
      end
    end
  end
  if last == 0 then return 0, false end
  return max(now + LINE.POLL, min(max(from, first) + math.ceil(min(ahead, 2 ^ 50)), last)), dear
end
local function line_serve(now, slot, service)
  local own = lines.own
  for _, s in ipairs(lines.all) do
    if s ~= own and s.due ~= 0 and not line_competes(s, now, slot) then s.taken = max(s.taken, own.taken - service / s.weight) end
  end
  lines.clock = max(lines.clock, own.taken)
  own.taken = own.taken + service / own.weight
end
local function line_end(now, asks)
  local own, waits = lines.own, false
  own.due, own.kept = lines.due, lines.kept
  if own.due == 0 and own.keys > asks then own.due = now end
  local all = {string.format('%.17g', lines.clock)}
  for i, s in ipairs(lines.all) do
    waits = waits or s.due ~= 0
    local w = {s.replica, string.format('%.17g', s.taken), dec(s.seen), dec(s.due), dec(s.kept), dec(s.horizon), dec(s.more)}
    for _, t in ipairs(s.tenants) do w[#w + 1] = t[1]; w[#w + 1] = dec(t[2]) end
    all[#all + 1] = table.concat(w, ' ')
  end
  if waits then save('lines', table.concat(all, '|')) elseif (st.lines or '') ~= '' then save('lines', '') end
end
local function line_scarce(now, reach, a, one)
  for i, l in ipairs(L) do
    local cost = a.costs[i]
    local units = cost * min(lines.calls, math.floor(2 ^ 52 / max(1, cost)))
    if l.shadow then
    elseif l.kind == 'i' then
      if one or open + lines.calls > l.burst then return i end
    elseif cost > 0 then
      if one then return i end
      if l.kind == 'r' then
        if max(l.t, now) + (units - l.burst) * l.p / l.q > reach then return i end
      elseif units > l.cap or l.meter.earliest(l, now, units) > reach then
        return i
      end
    end
  end
end
-- makes an ask wait if other replicas come before it for the slot at, or for what refused it one; returns what slot returns
local function in_turn(now, at, b, u, nv, a)
  if at then
    local till, dear = line_before(now, at, max(now, at - a.horizon), a.service)
    local scarce = till ~= 0 and line_scarce(now, now + a.horizon, a, dear)
    if scarce then
      lines.due, lines.kept = till, 0
      return nil, scarce, till, 3
    end
    line_serve(now, at, a.service)
    return at
  end
  if b == 0 or nv == 1 then return nil, b, u, nv end
  local l, keep = L[b], 0
  if l.kind == 'i' then
    keep = 1
  elseif l.kind == 'r' and a.costs[b] > 1 then
    keep = 2
    if #lines.all > 1 then u = min(u, now + LINE.DEAR) end
  end
  local till = line_before(now, u + a.horizon, u, a.service)
  if till > u then u, keep = till, 0 end
  lines.due, lines.kept = u, keep
  return nil, b, u, nv
end
`
