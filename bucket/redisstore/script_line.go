package redisstore

// luaLine is bucket's line.go. The replicas' standings are one field of the state, lines, packed by cmsgpack, which
// reads it ten times as fast as Lua would. It has their clock, and then for each replica its name, virtual time, seen,
// due, kept, horizon, more, each tenant with its number of keys, the limit whose units are kept, later, waits, api,
// part, served, within and parts. The field is empty while no replica waits. A tenant's word begins with h: if its jobs
// have high priority, and with l: if they have low priority.
const luaLine = `
local LINE = {REPLICAS = 64, GONE = 1000000, LATE = 5000, POLL = 100, DEAR = 200000}
local lines = {clock = 0, all = {}, apis = {}, order = {}, due = 0}
local CLASS = {['h:'] = 1, ['l:'] = 3}
local function line_class(tenant) return CLASS[string.sub(tenant, 1, 2)] or 2 end
local function line_late(s) return s.due + s.horizon + LINE.LATE end
local function line_rests(s, now) return s.later and s.due > now + LINE.GONE end
local function line_each(count, w)
  local kinds, sum, all, each = 0, 0, 0, {1, 1, 1}
  for c = 1, 3 do
    if count[c] > 0 then kinds, sum, all = kinds + 1, sum + w[c], all + count[c] end
  end
  for c = 1, kinds > 1 and 3 or 0 do
    if count[c] > 0 then each[c] = w[c] * all / (sum * count[c]) end
  end
  return each
end
local function line_of(api)
  local a = lines.apis[api]
  if not a then
    a = {api = api, keys = {}, count = {0, 0, 0}, calls = 0, weights = 0, parts = 0}
    lines.apis[api] = a
    lines.order[#lines.order + 1] = a
  end
  return a
end
local function line_weigh(now)
  lines.apis, lines.order = {}, {}
  for _, s in ipairs(lines.all) do
    local t = s.tenants
    if s.due ~= 0 and not line_rests(s, now) then
      local a = line_of(s.api)
      a.count[2] = a.count[2] + s.more
      for i = 1, #t, 2 do
        if not a.keys[t[i]] then
          local c = line_class(t[i])
          a.count[c] = a.count[c] + 1
        end
        a.keys[t[i]] = (a.keys[t[i]] or 0) + t[i + 1]
      end
    end
  end
  for _, s in ipairs(lines.all) do
    if s.due ~= 0 then
      local a = line_of(s.api)
      local each = line_each(a.count, s.parts)
      local t, n, weight, rests = s.tenants, s.more, s.more * each[2], line_rests(s, now)
      for i = 1, #t, 2 do
        local all = a.keys[t[i]] or 0
        if rests then all = all + t[i + 1] end
        n, weight = n + t[i + 1], weight + t[i + 1] / all * each[line_class(t[i])]
      end
      if n == 0 then n, weight = 1, 1 end
      if s.waits > 0 then n = s.waits end
      s.keys, s.weight = n, weight
      if not rests then a.parts = a.parts + weight end
    end
  end
  for _, s in ipairs(lines.all) do
    if s.due ~= 0 then
      local a, rests = line_of(s.api), line_rests(s, now)
      if s.api ~= '' then
        local all = a.parts
        if rests then all = all + s.weight end
        s.weight = s.part * s.weight / all
      end
      if not rests then a.calls, a.weights = a.calls + s.keys, a.weights + s.weight end
    end
  end
end
local function line_sum(field, within)
  local n = 0
  for _, a in ipairs(lines.order) do
    if within == 0 or a.api == lines.own.api then n = n + a[field] end
  end
  return n
end
local function line_part()
  if not lines.own then return 0 end
  local own, all = line_sum('weights', 1), line_sum('weights', 0)
  if own <= 0 or all <= own then return 1000 end
  return max(1, math.floor(1000 * own / all + 0.5))
end
local function line_begin(now, asks, held)
  local all, own = {}, nil
  if (st.lines or '') ~= '' then
    local known = cmsgpack.unpack(st.lines)
    lines.clock = known[1]
    for i = 2, #known do
      local w = known[i]
      local s = {replica = w[1], taken = w[2], seen = w[3], due = w[4], kept = w[5], horizon = w[6], more = w[7], tenants = w[8], limit = w[9], later = w[10], waits = w[11],
        api = w[12], part = w[13], served = w[14], within = w[15], parts = w[16]}
      if now <= max(s.seen, s.due) + LINE.GONE then all[#all + 1] = s end
      if s == all[#all] and s.replica == asks.replica then own = s end
    end
  end
  if not own then
    if #all == LINE.REPLICAS then
      local oldest = 1
      for i, s in ipairs(all) do if s.seen < all[oldest].seen then oldest = i end end
      table.remove(all, oldest)
    end
    own = {taken = 0, due = 0, served = 0}
    all[#all + 1] = own
  end
  if own.due == 0 then own.taken = max(own.taken, lines.clock) end
  for f, v in pairs(asks) do own[f] = v end
  own.seen, own.due, own.later, own.within = now, now, false, 0
  lines.all, lines.own, lines.due, lines.kept, lines.limit, lines.later, lines.held, lines.within = all, own, 0, 0, '', false, held, 0
  line_weigh(now)
end
local function line_elsewhere(tenant)
  if not lines.own or tenant == 0 then return 0 end
  local t = lines.own.tenants
  return line_of(lines.own.api).keys[t[2 * tenant - 1]] - t[2 * tenant]
end
local function line_whole(class)
  if not lines.own then return 0 end
  local t, part, a = lines.own.tenants, class == 2 and lines.own.more or 0, line_of(lines.own.api)
  for i = 1, #t, 2 do
    if line_class(t[i]) == class then part = part + t[i + 1] / a.keys[t[i]] end
  end
  if part == 0 then return 0 end
  return math.floor(1000 * a.count[class] / part + 0.5)
end
local function line_until(s, slot)
  if s.due <= slot then return line_late(s) end
  return min(line_late(s), s.seen + LINE.GONE)
end
local function line_competes(s, now, slot)
  return s.due ~= 0 and now <= line_until(s, slot) and (s.kept > 0 or s.due <= slot)
end
-- within is 0 for the replicas of all apis of the account, and 1 for those of the api
local function line_takes_part(s, within)
  if within == 1 then return s.api == lines.own.api end
  return s.within == 0
end
local function line_is_next(s, same)
  local own = lines.own
  return s.api ~= own.api and s.served < own.served and math.abs(own.taken - s.taken) <= same
end
local function line_before(now, slot, from, service, within)
  local own, ahead, first, last, dear = lines.own, 0, MAX, 0, {}
  local each = service / own.weight
  local slack = min(own.horizon / line_sum('weights', within), (own.keys - 1) / 2 * each)
  for _, s in ipairs(lines.all) do
    if s ~= own and line_takes_part(s, within) and line_competes(s, now, slot) then
      local lead = own.taken - slack - s.taken
      if lead > each / 1024 or within == 0 and line_is_next(s, each / 1024) then
        ahead = ahead + max(0, lead) * s.weight
        first, last = min(first, s.due), max(last, line_until(s, slot) + 1)
        if s.kept == 2 then dear[s.limit] = true end
      end
    end
  end
  if last == 0 then return 0 end
  return max(now + LINE.POLL, min(max(from, first) + math.ceil(min(ahead, 2 ^ 50)), last)), dear
end
local function line_is_apart(s)
  return s.within == 1 and s.api ~= lines.own.api
end
local function line_pass(service)
  for _, a in ipairs(lines.order) do
    local weight, taken = 0, 0
    for _, s in ipairs(lines.all) do
      if s.api == a.api and s.due ~= 0 and line_is_apart(s) then weight, taken = weight + s.weight, taken + s.weight * s.taken end
    end
    local missed = weight > 0 and lines.own.taken - service / weight - taken / weight or 0
    for _, s in ipairs(lines.all) do
      if missed > 0 and s.api == a.api and s.due ~= 0 and line_is_apart(s) then s.taken = s.taken + missed end
    end
  end
end
local function line_serve(now, slot, service)
  local own = lines.own
  for _, s in ipairs(lines.all) do
    if s ~= own and not line_is_apart(s) and s.due ~= 0 and not line_competes(s, now, slot) then s.taken = max(s.taken, own.taken - service / s.weight) end
    own.served = max(own.served, s.served + 1)
  end
  line_pass(service)
  lines.clock = max(lines.clock, own.taken)
  own.taken = own.taken + service / own.weight
end
local function line_end(now, asks)
  local own, waits = lines.own, false
  own.due, own.kept, own.limit, own.later, own.within = lines.due, lines.kept, lines.limit, lines.later, lines.within
  if (own.due == 0 or own.later) and own.keys > asks and not lines.held then own.due, own.later, own.within = now, false, 0 end
  local all = {lines.clock}
  for i, s in ipairs(lines.all) do
    waits = waits or s.due ~= 0
    all[i + 1] = {s.replica, s.taken, s.seen, s.due, s.kept, s.horizon, s.more, s.tenants, s.limit, s.later, s.waits,
      s.api, s.part, s.served, s.within, s.parts}
  end
  if waits then save('lines', cmsgpack.pack(all)) elseif (st.lines or '') ~= '' then save('lines', '') end
end
local function line_scope(l) return l.all and 0 or 1 end
local function line_scarce(now, reach, a, dear, within)
  local calls = line_sum('calls', within)
  for i, l in ipairs(L) do
    local cost = a.costs[i]
    local units = cost * min(calls, math.floor(2 ^ 52 / max(1, cost)))
    if l.shadow or line_scope(l) ~= within then
    elseif l.kind == 'i' then
      if open_of(l) + calls > l.burst then return i end
    elseif cost > 0 then
      if l.kind == 'r' then
        local drained = max(l.t, now) + (units - l.burst) * l.p / l.q
        if dear[l.name] or drained > reach or x_short(l, now, reach, units) then return i end
      elseif units > l.cap or earliest(l, now, units) > reach then
        return i
      end
    end
  end
end
-- makes an ask wait if other replicas come before it for the slot at, or for what refused it one; returns what slot returns
local function in_turn(now, at, b, u, nv, x, a)
  if at then
    for within = 1, lines.own.api == '' and 1 or 0, -1 do
      local till, dear = line_before(now, at, max(now, at - a.horizon), a.service, within)
      local scarce = till ~= 0 and line_scarce(now, now + a.horizon, a, dear, within)
      if scarce then
        lines.due, lines.kept, lines.limit, lines.later, lines.within = till, 0, '', false, within
        return nil, scarce, till, 3
      end
    end
    line_serve(now, at, a.service)
    return at
  end
  if b == 0 or nv == 1 then return nil, b, u, nv, x end
  local l, keep, within = L[b], 0, line_scope(L[b])
  local periodic = l.kind == 'q' or l.kind == 'f' or (x or 0) > 0
  if l.kind == 'i' then
    keep = 1
  elseif l.kind == 'r' and a.costs[b] > 1 and not periodic then
    keep = 2
    if #lines.all > 1 then u = min(u, now + LINE.DEAR) end
  end
  local till = line_before(now, u + a.horizon, u, a.service, within)
  if till > u then u, keep = till, 0 end
  if periodic then
    if lines.due == 0 then lines.due, lines.later, lines.within = u, true, within end
  else
    lines.due, lines.kept, lines.limit, lines.later, lines.within = u, keep, l.name, false, within
  end
  return nil, b, u, nv, x
end
`
