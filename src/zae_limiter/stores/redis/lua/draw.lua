-- Take all or nothing from every leg, or look what a draw would meet.
-- KEYS: the namespace, entity and bucket of each leg that the client knows of, and last the marks.
-- ARGV: 1 prefix, 2 entity, 3 resource, 4 now or '', 5 bit in the marks ('' = only look), 6 flags: 1 it may have been done,
--       2 the marks need an expiry, and behind them for how many days usage is kept, if not for 90, 7 signature of the route
--       that the client knows, 8 options as JSON or '', 9 the server's time at which the caller has given up, or '', 10 periods
--       of calendars (kinds.lua), then name, amount, name, amount, …
-- Reply: doubles in a string (1 granted or 0 denied, now, then T, m and C of every limit of every leg, and of one that is of
-- another kind: 1 if it would have refused, when the slots are due that were lent, how many values x has, and those); with
-- the route if the client knows another: {doubles, signature, route}. Or {code, now, …}: -1 a name that no level knows, -2 no
-- limits, -3 no such namespace, -4 deleted, -5 a counter would pass 9e15, -6 too late, -7 too many retired limits, -9 blocked,
-- with the switch and its level, -12 periods are missing, -13 it was done, and what it lent is not known any more. A denial
-- that a switch only observes begins with -1 instead of 0. A look that a switch concerns: {doubles, signature, route or '', the
-- switch that decides, and its level}.
-- A draw that has a ticket and is denied leaves a claim: {ticket, since when, until when, amounts} in the bucket that lacks
-- first. Draws that come later must leave what it wants. A denial for which there are claims is {doubles, signature, route or
-- '', JSON of them}.
-- A draw that is recorded (options.record): {2, now, record} if one is there that is not the one expected, and
-- {-10, now, signature, route} if the client knows another route, for its record has the legs of that one.
--
-- The order is a rule, for while a slot migrates a script may be stopped before any access to a key: first all reads, then
-- what harms no caller if it is done in vain, then the mark, and then only keys that were read before.
local prefix, resource, mark, flags = ARGV[1], ARGV[3], ARGV[5], string.sub(ARGV[6], 1, 1)
local now = clock(ARGV[4])
if ARGV[9] ~= '' and now > tonumber(ARGV[9]) then return { -6, now } end
if flags == '0' and ARGV[8] == '' and mark ~= '' and resource ~= '*' then
  local told = plain_draw(prefix, resource, now)
  if told then return told end
end
local vr = 'v/' .. resource
local ar = 'a/' .. resource
local wide = call('HMGET', KEYS[1], 'state', vr, 'v', 'policy', ar, 'a', 'q')
if wide[1] ~= 'live' then return refusal(wide[1], now) end
told_periods = ARGV[10]
local wanted, asked = {}, 0
for i = 11, #ARGV, 2 do wanted[ARGV[i]] = tonumber(ARGV[i + 1]); asked = asked + 1 end
local life, given, legs, reserved, waits, record, ticket
if ARGV[8] ~= '' then
  local options = cjson.decode(ARGV[8])
  given, legs, reserved = options.given, options.legs, options.reserved   -- legs: a lease takes more where it took first
  waits = options.waits                                -- a denial is not the last word, and is not counted
  record, ticket = options.record, options.ticket
  local there = record and call('GET', record.key)
  if there and cjson.decode(there).ver ~= record.expected then return { 2, now, there } end
end

-- The route: the entity, and upwards while each cascades; of each its bucket on the resource and its total, under the limits
-- that hold, as they are now. The entity itself may have no limits, if another leg has some: then its bucket only counts.
local ids, ons, keys, bs, ts, fresh, later, found = {}, {}, {}, {}, {}, {}, {}, {}
local all = {}                                         -- every entity that was asked, for the names that its levels know
local signature = (wide[4] or '-') .. '#' .. (wide[2] or '') .. '#' .. (wide[3] or '')   -- it begins with what an outage means
local count, limited, known, enough, overflow, crowded = 0, 0, 0, true, false, nil
local blocked, observed                                 -- by access switches: of the entities on the way, then the wide ones
local function obey(switch, id, on)
  if not switch then return end
  local mode, ends = string.match(switch, '^(%a+) ?(%d*)$')
  if ends ~= '' and now >= tonumber(ends) then return end
  if mode == 'block' then blocked = blocked or { -9, now, switch, id, on } else observed = observed or { 0, now, switch, id, on } end
end
local longest, binding, bound = -1, nil, nil           -- which limit of which leg lacks for longest

local claims, lacking                                   -- of callers that wait, if there are any; the first leg that lacks
if ticket or mark ~= '' and wide[7] and now < tonumber(wide[7]) then claims = make_claims(prefix, now, ticket, KEYS[#KEYS]) end
local refused, lent, lends, tells                       -- of limits of other kinds; tells: a repeat must be told the same

local function join(at, on, v, terms, first)           -- one more leg
  local key = prefix .. 'b#' .. at .. '#' .. on
  local stored = call('GET', key)
  local b, t, new
  if stored then
    b = { cmsgpack.unpack(stored) }
    t = { cmsgpack.unpack(b[1]) }
  end
  if not stored or t[1] ~= v then
    life = life or life_of_buckets(prefix, now, ARGV[6])
    b, t = life.current(stored, at, on, v, terms)
    if not b then
      crowded = { -7, now, at, on, t }
      return
    end
    new = stored and 'adopted' or 'born'
  end
  advance(b, t, now)
  count, limited = count + 1, limited + t[2]
  ids[count], ons[count], keys[count], bs[count], ts[count], fresh[count], later[count] = at, on, key, b, t, new, not first
  local held = reserved and reserved[at]
  held = held and held[on]
  if claims then held = claims.with_those_ahead(count, at, on, held) end
  if t[3] == 2 then
    local met = kinds.judged(b, t, wanted, held, now)
    refused = refused or {}
    refused[count], overflow, lends = met.refused, overflow or met.overflow, lends or met.lends
    tells = tells or met.lends or met.refuses
    for k = 4, 3 + 10 * (t[2] - 1) + 1, 10 do
      if wanted[t[k]] and not found[t[k]] then found[t[k]] = true; known = known + 1 end
    end
    if met.place then enough, lacking = false, lacking or count end
    if met.wait > longest then longest, binding, bound = met.wait, count, met.place end
    return
  end
  local j = 4
  for i = 6, 6 * t[2], 6 do
    local name = t[j]
    local amount = wanted[name]
    local needed = amount or 0
    if amount then
      if not found[name] then found[name] = true; known = known + 1 end
      if b[i + 2] + amount > 9e15 then overflow = true end
      if held and amount > 0 then needed = amount + (held[name] or 0) end
    end
    if b[i] < needed then
      enough, lacking = false, lacking or count
      local rate = t[j + 5] * 1000 + t[j + 6] + t[j + 7] / t[j + 8]
      local wait = math.ceil(((needed - b[i]) * 1000 - b[i + 1]) / rate - 1e-6)
      if (amount or 0) > t[j + 4] then wait = math.huge end
      if wait > longest then longest, binding, bound = wait, count, i end
    end
    j = j + 10
  end
end

if legs then
  for place, leg in ipairs(legs) do
    local e = call('HMGET', prefix .. 'e#' .. leg.id, 'v/' .. leg.on, 'v/_default_', ar, 'a/_default_')
    obey(e[3], leg.id, resource)
    obey(e[4], leg.id, '_default_')
    local v, terms = e[1] or leg.on ~= '*' and (e[2] or wide[2] or wide[3]), nil
    if (leg.call or not v) and #leg.terms > 0 then v, terms = leg.v, leg.terms end
    all[place] = leg.id
    if v then join(leg.id, leg.on, v, terms, place == 1) else join(leg.id, leg.on, '-', {}, place == 1) end
    signature = signature .. '#' .. leg.id .. '#' .. leg.on .. '#' .. (v or '')
  end
else
  local at, first = ARGV[2], true
  repeat
    local e = call('HMGET', prefix .. 'e#' .. at, 'p', vr, 'v/_default_', 'v/*', ar, 'a/_default_')
    obey(e[5], at, resource)
    obey(e[6], at, '_default_')
    local v, terms = e[2] or resource ~= '*' and (e[3] or wide[2] or wide[3]), nil
    if given and first then v, terms = given.v, given.terms end
    if v then join(at, resource, v, terms, first) elseif first then join(at, resource, '-', {}, true) end
    if e[4] and resource ~= '*' then join(at, '*', e[4], nil, false) end
    all[#all + 1] = at
    signature = signature .. '#' .. at .. '#' .. (e[2] or '') .. '#' .. (e[3] or '') .. '#' .. (e[4] or '')
    if terms then signature = signature .. '#' .. v end
    at, first = resource ~= '*' and e[1], false
  until not at
end
if crowded then return crowded end
local unknown = unknown_periods(now)
if unknown then return unknown end
obey(wide[5], '', resource)
obey(wide[6], '', '')
if limited == 0 then return { -2, now } end

local function told_leg(id, on, t)                     -- a leg as JSON: its limits, and the names that its levels know
  local limits, names, set, d = {}, {}, {}, life.decimal
  for j = 3, 3 + (t[2] - 1) * 10, 10 do
    limits[#limits + 1] = '["' .. t[j + 1] .. '",' .. d(t[j + 2]) .. ',' .. d(t[j + 3]) .. ',' .. d(t[j + 4]) .. ',' .. d(t[j + 5])
      .. (t[j + 10] ~= '' and ',"' .. t[j + 10] .. '"' or '') .. ']'
  end
  if on ~= '*' then life.known(id, on, set) end
  for name in pairs(set) do names[#names + 1] = '"' .. name .. '"' end
  return '[' .. cjson.encode(id) .. ',' .. cjson.encode(on) .. ',"' .. t[1] .. '",[' .. table.concat(limits, ',') .. '],['
    .. table.concat(names, ',') .. ']]'
end

local route = false
if signature ~= ARGV[7] then                           -- the client knows another
  life = life or life_of_buckets(prefix, now, ARGV[6])
  local told = {}
  for n = 1, count do told[#told + 1] = told_leg(ids[n], ons[n], ts[n]) end
  route = '[' .. table.concat(told, ',') .. ']'
end
if known ~= asked then                                 -- a name that is in force nowhere must be known to some level
  life = life or life_of_buckets(prefix, now, ARGV[6])
  if resource ~= '*' then
    for _, at in ipairs(all) do life.known(at, resource, found) end
  end
  for name in pairs(wanted) do
    if not found[name] then return { -1, now, signature, route } end
  end
end
if record and route then return { -10, now, signature, route } end

local function begin(n, mine)                          -- what harms no caller if it is done in vain
  if now - bs[n][5] >= 3600000 then
    life = life or life_of_buckets(prefix, now, ARGV[6])
    bs[n], ts[n] = life.begin_hour(bs[n], ts[n], ids[n], ons[n])
    fresh[n] = fresh[n] or 'hour'
  end
  if fresh[n] == 'born' then life.enlist(ids[n], ons[n], mine) end
end

local function save(n)
  if fresh[n] or ts[n][3] ~= 0 then                    -- its expiry is set anew
    life = life or life_of_buckets(prefix, now, ARGV[6])
    life.save(keys[n], bs[n], ts[n])
    if fresh[n] == 'born' then call('DEL', life.key('k', ids[n], ons[n])) end
  else
    call('SET', keys[n], cmsgpack.pack(unpack(bs[n])), 'KEEPTTL')
  end
end

local function deny(marks)                             -- new terms are kept: a raised limit must not stay refused
  local counts = not waits
  if counts then begin(binding, { [ids[binding]] = true }) end
  counts = counts and call('SETBIT', marks, 4096 + mark, 1) == 0
  if counts then
    if flags == '2' or flags == '3' then call('PEXPIRE', marks, 600000) end
    bs[binding][bound + 4] = bs[binding][bound + 4] + 1
  end
  for n = 1, count do
    if fresh[n] == 'adopted' or (counts and n == binding) then save(n) end
  end
end

local function take()
  local counted = {}
  for n = 1, count do
    local b, t, j, after = bs[n], ts[n], 4, later[n]
    b[3] = b[3] + 1
    if after then b[4] = b[4] + 1 end
    if t[3] == 2 then
      lent = lent or {}
      lent[n] = kinds.take(b, t, wanted, refused[n], after, counted, now)
    end
    for i = 6, t[3] ~= 2 and 6 * t[2] or 0, 6 do
      local name = t[j]
      local amount = wanted[name]
      if amount then
        b[i], b[i + 2] = b[i] - amount, b[i + 2] + amount
        if after and counted[name] then b[i + 3] = b[i + 3] + amount end
        counted[name] = true
      end
      j = j + 10
    end
    save(n)
  end
end

local code, keeping = enough and 1 or observed and -1 or 0, nil
if mark ~= '' then
  local marks, may_be_done, kept = KEYS[#KEYS], flags == '1' or flags == '3', nil
  if tells or kinds and may_be_done then
    keeping = reply_key(prefix, marks, mark)
    kept = call('GET', keeping)
  end
  if may_be_done and call('GETBIT', marks, mark) == 1 then
    if kept then return cmsgpack.unpack(kept) end
    if lends then return { -13, now } end
    for n in pairs(refused or {}) do refused[n] = {} end
    code, tells = 1, false
  elseif blocked then
    return blocked
  elseif not enough then
    deny(marks)
    if ticket then                                     -- if the caller waits at all: not for ever, and for what may come in time
      local place = not observed and longest < math.huge and (lends or longest <= ticket.patience) and lacking
      local till = claims.stand(place, wanted, ids, ons)
      if till and (not wide[7] or tonumber(wide[7]) < till) then call('HSET', KEYS[1], 'q', string.format('%.0f', till)) end
    end
    tells = false
  elseif overflow then
    return { -5, now }
  else
    local mine = {}
    for n = 1, count do mine[ids[n]] = true end
    for n = 1, count do begin(n, mine) end
    if record then list_record(prefix, record) end
    if call('SETBIT', marks, mark, 1) == 0 then        -- else its repeat was faster
      if flags == '2' or flags == '3' then call('PEXPIRE', marks, 600000) end
      take()
      if ticket then claims.stand(nil, wanted, ids, ons) end
      if record then
        local text = kinds and kinds.recorded(record.text, ids, ons, bs, ts, lent or {}, refused or {}, wanted) or record.text
        call('SET', record.key, text, 'PX', record.px)
      end
    elseif kept or lends then
      return kept and cmsgpack.unpack(kept) or { -13, now }
    else
      tells = false
    end
  end
end
local numbers, r = { code, now }, 2                    -- doubles in a string: cheap to make, and decoded only if they are looked at
for n = 1, count do
  local b, t = bs[n], ts[n]
  local mixed, j = t[3] == 2, 3
  for i = 6, 6 * t[2], 6 do
    numbers[r + 1], numbers[r + 2], numbers[r + 3] = b[i], b[i + 1], b[i + 2]
    r = r + 3
    if mixed and t[j + 10] ~= '' then
      local x = b[i + 5]
      numbers[r + 1] = refused[n][i - 1] and 1 or 0
      numbers[r + 2] = lent and lent[n] and lent[n][i - 1] or 0
      numbers[r + 3] = #x
      for k = 1, #x do numbers[r + 3 + k] = x[k] end
      r = r + 3 + #x
    end
    j = j + 10
  end
end
local reply = struct.pack('>' .. string.rep('d', r), unpack(numbers))
local decides = mark == '' and (blocked or observed)
if decides then
  reply = { reply, signature, route or '', decides[3], decides[4], decides[5] }
elseif code ~= 1 and claims and (ticket or next(claims.ahead)) then
  reply = { reply, signature, route or '', claims.told(ids, ons) }
elseif route then
  reply = { reply, signature, route }
end
if tells and code == 1 and mark ~= '' then call('SET', keeping, cmsgpack.pack(reply), 'PX', 60000) end
return reply
