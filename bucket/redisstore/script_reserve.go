package redisstore

// luaReserve is bucket's engine.go up to a grant: load, find the common slot, commit.
const luaReserve = `
-- cold is when the api's own part of the state was lost, cold_all when the account's was; n_own limits are of the api alone
local cold, cold_all, coldserial, n_own = 0, 0, 0, 0
-- A quota whose window slides from now on, or does no more, keeps its count. Replicas may not agree for a moment which of the
-- two it is: so what it counted as the other stays where it is, and only what is missing is added.
local function reconcile(l, now)
  local f = l.name .. ':'
  local form = l.kind == 's' and 's' or 'q'
  if st[f .. 'k'] == form then return end
  save(f .. 'k', form)
  local from, till, used = load(f .. 's') + behind, load(f .. 'e') + behind, load(f .. 'u')
  if form == 's' then
    l.gone = max(l.gone, from - 1)
  else
    local s, e = period(l, max(now, l.s))
    if not s then return end
    if s ~= l.s or e ~= l.e then begin(l, s, e) end
    from = s
  end
  local logged = 0
  for _, v in ipairs(redis.call('LRANGE', l.log, 0, -1)) do
    local _, e, units = entry(v)
    if e >= from then logged = logged + units end
  end
  if form == 'q' then
    l.u = max(l.u, logged)
  elseif used > logged and now < till + l.per then
    M.s.take(l, min(now, till), used - logged)
  end
end
local function load_limits(now)
  n_limits = num()
  for i = 1, n_limits do
    local l = {name = str(), all = num() == 1, kind = str(), shadow = num() == 1, cap = num(), burst = num(),
      guard = num(), per = num(), grain = num(), left = num(), of = str(), slack = num(), sign = str(),
      bounds = {}, log = KEYS[3 + i]}
    local p, q = num(), num()
    for b = 1, num() do l.bounds[b] = num() end
    local f = l.name .. ':'
    l.meter = M[l.kind]
    if not l.all then n_own = n_own + 1 end
    x_load(l)
    if l.kind == 'r' then
      l.t, l.r, l.last, l.since, l.marks = load(f .. 't'), load(f .. 'r'), load(f .. 'l'), load(f .. 'c'), {}
      l.p, l.q, l.window, l.late = p, q, l.per, l.guard
      for a, b in string.gmatch(st[f .. 'm'] or '', '(%d+):(%d+)') do
        l.marks[#l.marks + 1] = {tonumber(a), tonumber(b)}
      end
      local from = {p = load(f .. 'p'), q = load(f .. 'q'), burst = load(f .. 'b'), window = load(f .. 'w'), late = load(f .. 'j')}
      local kept = {{(load('asked') + 1) * WANT, 0}}
      if from.p == 0 or arrived(l) == 0 or load(f .. 'rn') ~= load(l.all and 'asked' or P .. 'asked') or st[f .. 'y'] == '1' and not l.shadow then
        -- it has not counted every call
        local last = arrived(l)
        l.t, l.r, l.last, l.since, l.marks = unknown(l, now, last), 0, 0, coarse(last), last > 0 and kept or {}
      elseif not same(from, l) then
        carry(l, now, arrived(l), from, l)
        l.last, l.marks = 0, kept
      end
    elseif l.kind == 's' then
      l.sum, l.gone, l.ends, l.sums = load(f .. 'sum'), load(f .. 'g'), {}, {}
    elseif l.kind ~= 'i' then
      l.s, l.e, l.u, l.final, l.others = load(f .. 's'), load(f .. 'e'), load(f .. 'u'), load(f .. 'z'), {}
      l.same = st[f .. 'd'] == l.sign
      if l.e > 0 then l.s, l.e = l.s + behind, l.e + behind end
      if l.same then
        for a, b, c, d in string.gmatch(st[f .. 'o'] or '', '(%d+):(%d+):(%d+):(%d+)') do
          l.others[#l.others + 1] = {tonumber(a) + behind, tonumber(b) + behind, tonumber(c), tonumber(d)}
        end
      end
      for i = 1, #l.bounds do l.bounds[i] = l.bounds[i] + behind end
      if l.kind == 'q' and (now < l.bounds[1] or now >= l.bounds[3]) then return 'stale' end
    end
    l.held = load(f .. 'h')
    L[i] = l
  end
  for _, l in ipairs(L) do
    if l.kind == 's' then
      M.s.advance(l, now)
    elseif (l.kind == 'q' or l.kind == 'f') and l.e > 0 and not l.same then
      local s, e = calendar(l, max(now, l.s))
      if s and l.e > s then l.s, l.e = s, e end
    end
    if l.kind == 'q' or l.kind == 'f' then turn_back(l, now) end
    if l.kind == 's' or l.kind == 'q' or l.kind == 'f' then reconcile(l, now) end
  end
  return 'ready'
end
local function save_limits()
  for _, l in ipairs(L) do
    local f = l.name .. ':'
    if l.kind == 'r' then
      save(f .. 't', dec(l.t)) save(f .. 'r', dec(l.r)) save(f .. 'l', dec(l.last))
      save(f .. 'p', dec(l.p)) save(f .. 'q', dec(l.q)) save(f .. 'b', dec(l.burst)) save(f .. 'w', dec(l.window)) save(f .. 'j', dec(l.late))
      save(f .. 'c', dec(l.since)) save(f .. 'rn', st.asked) save(f .. 'y', l.shadow and '1' or '0')
      local m = {}
      for i, k in ipairs(l.marks) do m[i] = dec(k[1]) .. ':' .. dec(k[2]) end
      save(f .. 'm', table.concat(m, ','))
    elseif l.kind == 's' then
      save(f .. 'sum', dec(l.sum)) save(f .. 'g', dec(l.gone))
    elseif l.kind ~= 'i' then
      local shift, others = l.e > 0 and behind or 0, {}
      for i, o in ipairs(l.others) do others[i] = dec(o[1] - behind) .. ':' .. dec(o[2] - behind) .. ':' .. dec(o[3]) .. ':' .. dec(o[4]) end
      save(f .. 's', dec(l.s - shift)) save(f .. 'e', dec(l.e - shift)) save(f .. 'u', dec(l.u)) save(f .. 'd', l.sign)
      save(f .. 'z', dec(l.final)) save(f .. 'o', table.concat(others, ','))
    end
    x_save(l)
    if l.shadow then save(f .. 'h', dec(l.held)) end
  end
end

-- the bucket of one key: "tat rem last p q burst window late since"; p is 0 of one that is not known
local function load_key(name, lost)
  local k = {t = 0, r = 0, last = 0, p = 0, q = 1, burst = 0, window = 0, late = 0, since = 0}
  local v = redis.call('GET', name)
  if v then
    local n = {}
    for x in string.gmatch(v, '%d+') do n[#n + 1] = tonumber(x) end
    k.t, k.r, k.last, k.p, k.q, k.burst, k.window, k.late, k.since = unpack(n)
  end
  if lost > k.t and k.last < coldserial then k.t, k.r, k.last, k.since = lost, 0, 0, load(P .. 'latest') end
  return k
end
local function turn_key(k, now, own)
  local arrived, latest = load(P .. 'arrived'), load(P .. 'latest')
  local called = max(max(now - load(P .. 'memory'), load(P .. 'known')), min(latest, now - load(P .. 'least')))
  if k.p == 0 or g_end(k) + k.late <= called then
    local t = unknown(own, now, min(min(called, arrived), latest))
    if k.p > 0 or t > k.t then k.t, k.r = t, 0 end
    k.since = latest
  elseif same(k, own) then
    return
  else
    carry(k, now, arrived, k, own)
    st[P .. 'latest'] = dec(max(latest, coarse(arrived)))
  end
  k.p, k.q, k.burst, k.window, k.late, k.last = own.p, own.q, own.burst, own.window, own.late, 0
end
local function packed(k)
  local n = {}
  for i, x in ipairs({k.t, k.r, k.last, k.p, k.q, k.burst, k.window, k.late, k.since}) do n[i] = dec(x) end
  return table.concat(n, ' ')
end
-- an entry lives until its bucket has been empty for as long as a changed rate has to know of it, and a second longer
local function save_key(name, k, now, memory)
  local ttl = ceildiv(max(0, k.t - now) + k.late + max(memory, ceildiv(k.burst * k.p, k.q)), 1000) + 1000
  redis.call('SET', name, packed(k), 'PX', dec(ttl))
end

local function would_hold(l, at, cost)
  if l.kind == 'i' then return open_of(l) >= l.burst end
  return cost > l.cap or cost > 0 and l.meter.earliest(l, at, cost) > at
end
-- returns the slot, or nil, the number of the binding limit (0: the key's own), until, 1 for never or 3 for the edge of a period,
-- and the units of the excess whose end is waited for
local function slot(now, k, a, blind, blind_all)
  for i, l in ipairs(L) do
    if a.costs[i] > l.cap and not l.shadow then return nil, i, 0, 1 end
  end
  local reach = now + a.horizon
  for _, l in ipairs(L) do
    if l.kind == 'q' then reach = min(reach, l.bounds[#l.bounds] - 1) end
  end
  local at, binding, moved, before_it = g_slot(k, now, a.burst, 1), 0, true, 0
  while moved and at <= reach do
    moved = false
    for i, l in ipairs(L) do
      if l.kind ~= 'i' and not l.shadow and a.costs[i] > 0 then
        local s = earliest(l, at, a.costs[i])
        if s > at then before_it, at, binding, moved = at, s, i, true end
      end
    end
  end
  if at > reach then
    local l, why, excess = L[binding], 0, 0
    if l and l.meter.spent and not l.meter.spent(l, before_it, at, a.costs[binding]) then why = 3 end
    if l then excess = x_holds(l, now, at) end
    return nil, binding, max(now + 1, at - a.horizon), why, excess
  end
  for i, l in ipairs(L) do
    if l.kind == 'i' and not l.shadow and (open_of(l) >= l.burst or now < (l.all and blind_all or blind)) then return nil, i, now + 5000, 0 end
  end
  return at
end
local function hold(set, field, at, lease, serial)
  local e = max(at + lease, load(field))
  st[field] = dec(e)
  redis.call('ZADD', set, dec(e), serial)
end
local function commit(at, serial, k, a, lease, jitter, all)
  st[P .. 'arrived'] = dec(max(load(P .. 'arrived'), at + jitter))
  if all then st.arrived = dec(max(load('arrived'), at + all.jitter)) end
  g_take(k, at, 1)
  k.last = serial
  for i, l in ipairs(L) do
    local cost = a.costs[i]
    if l.shadow and would_hold(l, at, cost) then
      l.held = l.held + 1
    elseif l.kind ~= 'i' and cost > 0 then
      l.meter.take(l, at, cost, serial)
      x_take(l, at, cost)
      l.taken = l.taken + cost
    end
  end
  -- with an account also if no limit needs it: a change may bring such a limit while the call runs
  if all or n_own > 0 then hold(KEYS[2], P .. 'lease', at, lease, dec(serial)) open = open + 1 end
  if all then hold(KEYS[3], 'lease', at, all.lease, dec(serial)) open_all = open_all + 1 end
end
local function reserve(now, lease, far, memory, jitter, all, out)
  local asked, n, replica, more, held, waits, weights, tenants, api, part = load('asked'), num(), str(), 0, false, 0, {}, {}, '', 1
  if replica ~= '' then
    more, held, waits = num(), num() == 1, num()
    for c = 1, 3 do weights[c] = num() end
    api, part = str(), num()
    for i = 1, 2 * num(), 2 do tenants[i], tenants[i + 1] = str(), num() end
  end
  for j = 1, n do
    local own = {p = num(), q = num(), burst = num(), window = num(), late = jitter}
    local a = {burst = own.burst, horizon = num(), want = num(), costs = {}}
    local floor, tenant, class = num(), num(), num()
    a.service = num()
    if j == 1 and replica ~= '' then line_begin(now, {replica = replica, horizon = a.horizon, more = more, waits = waits, parts = weights, tenants = tenants, api = api, part = part}, held) end
    for i = 1, n_limits do a.costs[i] = num() end
    local name, lost, blind, blind_all, farthest = KEYS[3 + n_limits + j], 0, 0, 0, max(a.horizon, far)
    if cold > 0 then
      lost = cold + farthest + ceildiv(own.burst * own.p, own.q)
      blind = cold + farthest + lease
    end
    if cold_all > 0 then blind_all = cold_all + farthest + all.lease end
    local k = load_key(name, lost)
    turn_key(k, now, own)
    if floor > g_end(k) then k.t, k.r, k.last = min(floor, MAX), 0, 0 end
    asked = asked + 1
    local count_at = #out + 1
    out[count_at] = '0'
    local binding, till, never, excess = -1, 0, 0, 0
    for i = 0, a.want - 1 do
      local at, b, u, nv, x = slot(now, k, a, blind, blind_all)
      if lines.own then at, b, u, nv, x = in_turn(now, at, b, u, nv, x, a) end
      if not at then binding, till, never, excess = b, u, nv, x or 0 break end
      local serial, former = asked * WANT + i, k.last
      commit(at, serial, k, a, lease, jitter, all)
      out[count_at] = dec(i + 1)
      out[#out + 1] = dec(at) out[#out + 1] = dec(g_end(k)) out[#out + 1] = dec(serial) out[#out + 1] = dec(former)
      for _, l in ipairs(L) do
        if l.left > 0 then out[#out + 1] = dec(l.taken) out[#out + 1] = dec(l.freed) end
      end
    end
    -- 2: what stands in the way counts as full because nobody knows
    if sums and binding > 0 and never ~= 1 and load(L[binding].name .. ':x') > 0 then never = 2 end
    out[#out + 1] = dec(binding) out[#out + 1] = dec(till) out[#out + 1] = dec(never) out[#out + 1] = dec(excess)
    out[#out + 1] = dec(line_elsewhere(tenant)) out[#out + 1] = dec(line_whole(class)) out[#out + 1] = dec(line_part())
    save_key(name, k, now, memory)
  end
  if lines.own then line_end(now, n) end
  st.asked = dec(asked)
end
`

// luaSettle ends grants, and seeds limits whose use was unknown.
const luaSettle = `
local function settle(now, all)
  for j = 1, num() do
    local serial, former, at, returned, hold = num(), num(), num(), num() == 1, num()
    local name = KEYS[3 + n_limits + j]
    if returned and redis.call('EXISTS', name) == 1 then
      local k = load_key(name, 0)
      if serial > 0 and k.last == serial then
        g_untake(k, 1)
        k.last = former
        redis.call('SET', name, packed(k), 'KEEPTTL')
      end
    end
    local member = dec(serial)
    local holds_own = all or n_own > 0
    local own_open = holds_own and redis.call('ZREM', KEYS[2], member) == 1
    if hold > 0 and holds_own then redis.call('ZADD', KEYS[2], dec(now + hold), member) end
    if serial < 0 then member = P .. member end -- operations of two apis may have the same
    local all_open = all and redis.call('ZREM', KEYS[3], member) == 1
    if hold > 0 and all then redis.call('ZADD', KEYS[3], dec(now + hold), member) end
    for i = 1, n_limits do
      local l, cost, actual = L[i], num(), num() -- -1: not placed, not known
      local was_open = own_open
      if l.all then was_open = all_open end
      local left, till, least, taken, freed = -1, 0, 0, 0, 0
      if l.left > 0 then left, till, least, taken, freed = num(), num(), num(), num(), num() end
      if l.kind ~= 'i' and not l.shadow and cost >= 0 then
        if returned then
          if was_open then
            l.meter.give_back(l, at, cost, serial)
            x_gave_back(l, serial, at, cost)
          end
        elseif actual >= 0 and (actual > cost or was_open) then
          l.meter.correct(l, now, at, cost, actual, serial)
          x_gave_back(l, serial, at, cost - actual)
        end
        if left >= 0 and was_open and not returned then x_heed(l, now, serial, at, left, till, least, taken, freed) end
      end
    end
  end
end
local function seed(now)
  for i = 1, n_limits do
    local l, used = L[i], num()
    local unknown = l.name .. ':x'
    -- a period that has not begun counts as full until the ledger can tell what was used in it
    local ahead = l.kind ~= 's' and now < (l.s or 0)
    if used >= 0 and (st[unknown] == '1' or st[unknown] == '2') and not ahead then
      if l.kind == 's' then
        redis.call('DEL', l.log)
        l.sum = 0
        if used > 0 then M.s.take(l, now, used) end
      else
        local s, e = period(l, now)
        if s == l.s and e == l.e then l.u = used end
      end
      save(unknown, '0')
    end
  end
end
`
