-- Take all or nothing from every leg, or look what a draw would meet.
-- KEYS: the namespace, entity and bucket of each leg that the client knows of, and last the marks.
-- ARGV: 1 prefix, 2 entity, 3 resource, 4 now or '', 5 bit in the marks ('' = only look), 6 flags: 1 it may have been done,
--       2 the marks need an expiry, and behind them for how many days usage is kept, if not for 90, 7 signature of the route
--       that the client knows, 8 options as JSON or '', 9 the server's time at which the caller has given up, or '', 10 periods
--       of calendars (kinds.lua), then name, amount, name, amount, …
-- Reply: doubles in a string (1 granted or 0 denied, now, then T and m of every limit of every leg, and of one that is of
-- another kind: 1 if it would have refused, when the slots are due that were lent, how many values x has, and those); with
-- the route if the client knows another: {doubles, signature, route}. Or {code, now, …}: -1 a name that no level knows, -2 no
-- limits, -3 no such namespace, -4 deleted, -5 a counter would pass 9e15, -6 too late, -7 too many retired limits, -9 blocked,
-- with the switch and its level, -12 periods are missing, -13 it was done, and what it lent is not known any more. A denial
-- that a switch only observes begins with -1 instead of 0.
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
  if mode == 'block' then blocked = blocked or { -9, now, switch, id, on } else observed = true end
end
local longest, binding, bound = -1, nil, nil           -- which limit of which leg lacks for longest

-- What those want that claimed earlier, besides what is reserved already. Few draws meet any: the namespace says until when
-- there are some.
local waited_for = mark ~= '' and wide[7] and now < tonumber(wide[7])
local queues, ahead, lacking = {}, {}, nil             -- claims by leg, what they want, and the first leg that lacks
local since = ticket and (ticket.since or now)
local own = waited_for and string.match(KEYS[#KEYS], '#([^-]+)%-') .. '.'   -- what its own process waits for is reserved
local function with_claims(n, at, on, held)
  local stored = call('GET', prefix .. 'q#' .. at .. '#' .. on)
  queues[n] = stored and cmsgpack.unpack(stored) or {}
  local sums = {}
  for _, claim in ipairs(queues[n]) do
    local id, begun, till, amounts = unpack(claim)
    local earlier = not ticket or begun < since or begun == since and id < ticket.id
    if till > now and earlier and string.sub(id, 1, #own) ~= own then
      for name, amount in pairs(amounts) do sums[name] = (sums[name] or 0) + amount end
    end
  end
  if not next(sums) then return held end
  ahead[n] = sums
  local all = {}
  for name, amount in pairs(held or {}) do all[name] = amount end
  for name, amount in pairs(sums) do all[name] = (all[name] or 0) + amount end
  return all
end

-- One more leg that has limits of other kinds. Those that only watch and lack are noted, by the place of their x.
local refused, lends, tells = {}, false, false         -- tells: its repeat must be told the same, whatever is then
local function join_mixed(b, t, held)
  refused[count] = {}
  local j = 3
  for i = 5, 6 * t[2] - 1, 6 do
    local name, kind = t[j + 1], kinds.parsed(t[j + 10])
    local amount = wanted[name]
    local needed, free = amount or 0, b[i + 1]
    if amount then
      if not found[name] then found[name] = true; known = known + 1 end
      if b[i + 3] + amount > 9e15 then overflow = true end
      if held and amount > 0 and not kind.watches then needed = amount + (held[name] or 0) end
    end
    if kind.held then
      free = free + kinds.overdue(b[i + 6], now)
      if amount and amount > 0 then lends, tells = true, true end
    end
    if free < needed and ((amount or 0) > 0 or not kind.held) then
      if kind.watches then
        refused[count][i], tells = true, true
      else
        enough, lacking = false, lacking or count
        local wait = (amount or 0) > t[j + 5] and math.huge or kinds.wait(b, t, i, j, needed, now)
        if wait > longest then longest, binding, bound = wait, count, i + 1 end
      end
    end
    j = j + 10
  end
end

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
  if waited_for then held = with_claims(count, at, on, held) end
  if t[3] == 2 then return join_mixed(b, t, held) end
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

-- Take from a leg that has limits of other kinds. A limit that would have refused is not taken from, and counts that.
local lent = {}                                        -- by leg and place: when the slots are due
local function take_mixed(n, b, t, after, counted)
  lent[n] = {}
  local j = 3
  for i = 5, 6 * t[2] - 1, 6 do
    local name, kind = t[j + 1], kinds.parsed(t[j + 10])
    local amount = wanted[name]
    if refused[n][i] then
      b[i + 6][1] = b[i + 6][1] + 1
    elseif amount then
      if kind.held and amount > 0 then
        b[i + 1], lent[n][i] = kinds.lend(b[i + 1], b[i + 6], t[j + 4], amount, now)
      else
        b[i + 1] = b[i + 1] - amount
      end
      b[i + 3] = b[i + 3] + amount
      if after and counted[name] then b[i + 4] = b[i + 4] + amount end
      counted[name] = true
    end
    j = j + 10
  end
end

-- Let the claim of this ticket stand in one bucket, or in none, and drop those that are over.
local function claim_in(place)
  for n = 1, count do
    local queue, kept, mine, changed, last = queues[n] or {}, {}, nil, false, 0
    for _, claim in ipairs(queue) do
      if claim[1] == ticket.id then mine = claim end
      if claim[3] > now and (claim[1] ~= ticket.id or n == place) then kept[#kept + 1] = claim else changed = true end
    end
    if n == place then
      local amounts = {}
      for name, amount in pairs(wanted) do if amount > 0 then amounts[name] = amount end end
      if not mine or mine[3] <= now then
        mine = { ticket.id, since, 0, amounts }
        kept[#kept + 1] = mine
      end
      mine[3], changed = now + ticket.lasts, true
      if not wide[7] or tonumber(wide[7]) < mine[3] then call('HSET', KEYS[1], 'q', string.format('%.0f', mine[3])) end
    end
    for _, claim in ipairs(kept) do last = math.max(last, claim[3]) end
    local key = prefix .. 'q#' .. ids[n] .. '#' .. ons[n]
    if changed and #kept == 0 then call('DEL', key)
    elseif changed then call('SET', key, cmsgpack.pack(kept), 'PX', string.format('%.0f', last - now)) end
  end
end

local function told_claims()                           -- what a denial had to leave to others, and since when it claims itself
  local told = {}
  for n, sums in pairs(ahead) do
    local amounts = {}
    for name, amount in pairs(sums) do amounts[#amounts + 1] = '"' .. name .. '":' .. string.format('%.0f', amount) end
    told[#told + 1] = '[' .. cjson.encode(ids[n]) .. ',' .. cjson.encode(ons[n]) .. ',{' .. table.concat(amounts, ',') .. '}]'
  end
  return '{"since":' .. (ticket and string.format('%.0f', since) or 'null') .. ',"ahead":[' .. table.concat(told, ',') .. ']}'
end

local function take()
  local counted = {}
  for n = 1, count do
    local b, t, j, after = bs[n], ts[n], 4, later[n]
    b[3] = b[3] + 1
    if after then b[4] = b[4] + 1 end
    if t[3] == 2 then take_mixed(n, b, t, after, counted) end
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

-- The record of a lease, with what is known only now: the slots it holds, and the limits that would have refused.
local function recorded_text()
  local holds, refusing = {}, {}
  for n = 1, count do
    local t, names = ts[n], {}
    for i, due in pairs(lent[n] or {}) do
      local j = 3 + (i - 5) / 6 * 10
      local name, d = t[j + 1], life.decimal
      holds[#holds + 1] = '[' .. cjson.encode(ids[n]) .. ',' .. cjson.encode(ons[n]) .. ',"' .. name .. '",' .. d(wanted[name]) .. ','
        .. d(due) .. ',' .. d(t[j + 4]) .. ',' .. d(bs[n][i + 6][3]) .. ']'
    end
    for i in pairs(refused[n] or {}) do names[#names + 1] = '"' .. t[3 + (i - 5) / 6 * 10 + 1] .. '"' end
    refusing[n] = '[' .. table.concat(names, ',') .. ']'
  end
  return string.sub(record.text, 1, -2) .. ',"h":[' .. table.concat(holds, ',') .. '],"refused":[' .. table.concat(refusing, ',') .. ']}'
end

local function reply_with(code)                        -- doubles in a string: cheap to make, and decoded only if they are looked at
  local numbers, r = { code, now }, 2
  for n = 1, count do
    local b, t = bs[n], ts[n]
    local mixed, j = t[3] == 2, 3
    for i = 6, 6 * t[2], 6 do
      numbers[r + 1], numbers[r + 2] = b[i], b[i + 1]
      r = r + 2
      if mixed and t[j + 10] ~= '' then
        local x = b[i + 5]
        numbers[r + 1] = refused[n][i - 1] and 1 or 0
        numbers[r + 2] = lent[n] and lent[n][i - 1] or 0
        numbers[r + 3] = #x
        for k = 1, #x do numbers[r + 3 + k] = x[k] end
        r = r + 3 + #x
      end
      j = j + 10
    end
  end
  local packed = struct.pack('>' .. string.rep('d', r), unpack(numbers))
  if code ~= 1 and (ticket or next(ahead)) then return { packed, signature, route or '', told_claims() } end
  if route then return { packed, signature, route } end
  return packed
end

local code = enough and 1 or observed and -1 or 0
if mark ~= '' then
  local marks, may_be_done, keeping, kept = KEYS[#KEYS], flags == '1' or flags == '3', nil, nil
  if tells or kinds and may_be_done then
    keeping = reply_key(prefix, marks, mark)
    kept = call('GET', keeping)
  end
  if may_be_done and call('GETBIT', marks, mark) == 1 then
    if kept then return cmsgpack.unpack(kept) end
    if lends then return { -13, now } end
    for n in pairs(refused) do refused[n] = {} end
    code = 1
  elseif blocked then
    return blocked
  elseif not enough then
    deny(marks)
    if ticket then                                     -- if the caller waits at all: not for ever, and for what may come in time
      claim_in(not observed and longest < math.huge and (lends or longest <= ticket.patience) and lacking)
    end
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
      if ticket and waited_for then claim_in(nil) end
      if record then
        life = life or life_of_buckets(prefix, now, ARGV[6])
        call('SET', record.key, kinds and recorded_text() or record.text, 'PX', record.px)
      end
      if tells then
        local reply = reply_with(1)
        call('SET', keeping, cmsgpack.pack(reply), 'PX', 60000)
        return reply
      end
    elseif kept or lends then
      return kept and cmsgpack.unpack(kept) or { -13, now }
    end
  end
end
return reply_with(code)
