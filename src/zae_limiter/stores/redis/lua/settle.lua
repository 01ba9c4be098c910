-- Book after the fact: debits into debt if need be, credits up to the ceiling.
-- KEYS: the namespace, the buckets, and last the marks.
-- ARGV: 1 prefix, 2 now or '', 3 bit in the marks, 4 flags as for a draw,
--       5 JSON: [[entity, resource, {name: tokens}, [names that an earlier leg counts too], version, terms, [[name, slots,
--       due, life], …], undone, usage], …]; positive taken, negative given back, of calls in flight too. Version and terms are of
--       the limits that were drawn from; they are false until the script asks for them. Undone: it was never used; the
--       names of limits that only watch and would have refused it. Usage: what is counted by name, if not what is taken.
--       6 JSON of the record that goes with it, or '', 7 periods of calendars (kinds.lua).
-- Reply: 1, or {1, now, then due, life and ttl of all slots that were taken}, or {code, now}: -3, -4, -5, -12, -13 as for a draw;
-- -8 say the terms; -11 the record is another one, which follows.
local prefix, mark, flags = ARGV[1], ARGV[3], string.sub(ARGV[4], 1, 1)
local now = clock(ARGV[2])
local state = call('HGET', KEYS[1], 'state')
if state ~= 'live' then return refusal(state, now) end
told_periods = ARGV[7]
local postings, takes = cjson.decode(ARGV[5]), false
if flags == '0' and ARGV[6] == '' then
  local told = plain_settle(prefix, postings, now)
  if told then return told end
end
for _, posting in ipairs(postings) do
  for _, change in ipairs(posting[7] or {}) do takes = takes or change[2] > 0 end
end
local keeping = takes and reply_key(prefix, KEYS[#KEYS], mark)
local kept = keeping and call('GET', keeping)
local function done() return kept and { cmsgpack.unpack(kept) } or takes and { -13, now } or 1 end
if (flags == '1' or flags == '3') and call('GETBIT', KEYS[#KEYS], mark) == 1 then return done() end
local record
if ARGV[6] ~= '' then
  record = cjson.decode(ARGV[6])
  local there = call('GET', record.key)
  if there == record.text then return 1 end            -- an earlier try, whose mark is no more
  local found = there and cjson.decode(there)
  if found and (found.st == 'closed' or found.st == 'done') or record.expected ~= (found and found.st ~= 'void' and found.ver or 0) then
    return { -11, now, there or '' }
  end
end
local life
local MAX_RETIRED = 36

-- Which names the limits of a bucket stand for that are not of calls in flight; and any that is in force.
local function names_in(t)
  local names, j = {}, 3
  for n = 1, (#t - 3) / 10 do
    local kind = t[j + 10]
    if t[j + 5] > 0 and (n <= t[2] or kind ~= 'h' and kind ~= 'wh') then names[t[j + 1]] = true end
    j = j + 10
  end
  return names
end

-- A limit that has ended, and that a lease still settles, is retired again: it is full.
local function retire_again(b, t, terms, deltas)
  local names, retired = names_in(t), -t[2]
  for j = 3, #t - 10, 10 do if t[j + 5] > 0 then retired = retired + 1 end end
  for k = 0, #terms - 10, 10 do
    local name, kind = terms[k + 1], terms[k + 10]
    if deltas[name] and not names[name] and kind ~= 'h' and kind ~= 'wh' and retired < MAX_RETIRED then
      retired = retired + 1
      local place
      for n = 0, (#t - 13) / 10 do if t[3 + n * 10 + 1] == name and t[3 + n * 10 + 5] == 0 then place = n end end
      place = place or (#t - 3) / 10
      for x = 1, 10 do t[3 + place * 10 + x] = terms[k + x] end
      local i = 5 + place * 6
      local sn = b[i + 6] and b[i + 6] ~= '' and b[i + 6][1] or 0
      b[i + 1], b[i + 2], b[i + 6] = terms[k + 5], 0, sn > 0 and { sn } or ''
      if kind ~= '' then
        t[3], kinds = 2, kinds or make_kinds()
        b[i + 1], b[i + 2], b[i + 6] = kinds.rebased(kind, terms[k + 5], terms[k + 3], sn, nil, b[2])
      end
      b[i + 3], b[i + 4], b[i + 5] = b[i + 3] or 0, b[i + 4] or 0, b[i + 5] or 0
    end
  end
  b[1] = cmsgpack.pack(unpack(t))
end

local function lacks_name(t, deltas)
  local names = names_in(t)
  for name in pairs(deltas) do if not names[name] then return true end end
  return false
end

local function part_of(parts, name, amount)            -- what an earlier leg counts too
  for _, one in ipairs(parts) do if one == name then return amount end end
  return 0
end

local todo, mine = {}, {}
for _, posting in ipairs(postings) do mine[posting[1]] = true end
for p, posting in ipairs(postings) do
  local entity, resource, deltas, parts, v, terms = unpack(posting, 1, 6)
  local key = prefix .. 'b#' .. entity .. '#' .. resource
  local stored = call('GET', key)
  local b, t, moved
  if stored then
    b = { cmsgpack.unpack(stored) }
    t = { cmsgpack.unpack(b[1]) }
  else                                                 -- it is gone: full, then the debit
    life = life or life_of_buckets(prefix, now, ARGV[4])
    local holds = life.version(entity, resource, life.wide(resource))
    if not holds and not terms then return { -8, now } end
    b, t = life.current(nil, entity, resource, holds or v, not holds and terms or nil, true)
    moved = true
  end
  if lacks_name(t, deltas) then
    if not terms then return { -8, now } end
    retire_again(b, t, terms, deltas)
    moved = true
  end
  advance(b, t, now)
  local changes, usage, j = {}, posting[9], 3
  for i = 5, #b - 6, 6 do
    local kind = t[j + 10]
    local amount = t[j + 5] > 0 and kind ~= 'h' and kind ~= 'wh' and deltas[t[j + 1]]
    if amount then
      if kind ~= '' and (i - 5) / 6 >= t[2] and kinds.parsed(kind).boundaries then kinds.begin_period(b, t, i, j, now) end
      local top = t[j + 5]
      if kind ~= '' then top = top + kinds.extra(kind, b[i + 6]) end
      local tokens, m = booked(b[i + 1], b[i + 2], amount, top)
      local count = amount
      if usage then count = usage[t[j + 1]] or 0 end
      if tokens < -8e15 or math.abs(b[i + 3] + count) > 9e15 then return { -5, now } end
      changes[#changes + 1] = { t[j + 1], tokens, m, b[i + 3] + count, b[i + 4] + part_of(parts, t[j + 1], count) }
    end
    j = j + 10
  end
  todo[p] = { entity, resource, key, b, t, changes, not stored, moved, posting }
end
local unknown = unknown_periods(now)
if unknown then return unknown end
for _, x in ipairs(todo) do                            -- what harms no caller if it is done in vain
  if now - x[4][5] >= 3600000 then
    life = life or life_of_buckets(prefix, now, ARGV[4])
    x[4], x[5] = life.begin_hour(x[4], x[5], x[1], x[2])
    x[8] = true
  end
  if x[7] then life.enlist(x[1], x[2], mine) end
end
if record and not record.done then list_record(prefix, record) end
if call('SETBIT', KEYS[#KEYS], mark, 1) == 1 then return done() end
if flags == '2' or flags == '3' then call('PEXPIRE', KEYS[#KEYS], 600000) end
if record then call('SET', record.key, record.text, 'PX', record.px) end

-- Slots that a lease gives back, or takes without asking: the call is running, so the count must show it.
local reply = { 1, now }
local function change_holds(b, t, holds, undone, parts)
  for _, hold in ipairs(holds) do
    local name, slots, due, of = unpack(hold)
    local counted, there = (slots > 0 or undone) and part_of(parts, name, slots) or 0, false
    for i = 5, #b - 6, 6 do
      local j = 3 + (i - 5) / 6 * 10
      local kind, x = t[j + 10], b[i + 6]
      if t[j + 1] == name and (kind == 'h' or kind == 'wh') then
        kinds = kinds or make_kinds()
        there = true
        if slots > 0 then
          b[i + 1], due = kinds.lend(b[i + 1], x, t[j + 4], slots, now)
          b[i + 3] = b[i + 3] + slots
          for _, value in ipairs({ due, x[3], t[j + 4] }) do reply[#reply + 1] = value end
        else
          local tokens = kinds.give_back(b[i + 1], x, -slots, due, of)
          b[i + 1] = tokens or b[i + 1]
          if tokens and undone then b[i + 3] = b[i + 3] + slots end
        end
        b[i + 4] = b[i + 4] + counted
      end
    end
    if not there and slots > 0 then for _ = 1, 3 do reply[#reply + 1] = 0 end end
  end
end

local function undo_refusals(b, t, undone)             -- what limits that only watch would have refused
  for _, name in ipairs(undone) do
    for i = 5, 6 * t[2] - 1, 6 do
      local j = 3 + (i - 5) / 6 * 10
      if t[j + 1] == name and string.sub(t[j + 10], 1, 1) == 'w' then b[i + 6][1] = b[i + 6][1] - 1 end
    end
  end
end

for _, x in ipairs(todo) do
  local b, t, posting = x[4], x[5], x[9]
  local expires = x[8] or t[3] ~= 0                    -- anew: it is another bucket now, or may take long to fill
  for _, change in ipairs(x[6]) do
    local j = 3
    expires = expires or change[2] < 0
    for i = 5, #b - 6, 6 do
      local kind = t[j + 10]
      if t[j + 1] == change[1] and t[j + 5] > 0 and kind ~= 'h' and kind ~= 'wh' then
        b[i + 1], b[i + 2], b[i + 3], b[i + 4] = unpack(change, 2, 5)
      end
      j = j + 10
    end
  end
  if posting[7] then change_holds(b, t, posting[7], posting[8], posting[4]) end
  if posting[8] then undo_refusals(b, t, posting[8]) end
  if expires then
    life = life or life_of_buckets(prefix, now, ARGV[4])
    life.save(x[3], b, t)
  else
    call('SET', x[3], cmsgpack.pack(unpack(b)), 'KEEPTTL')
  end
  if x[7] then call('DEL', life.key('k', x[1], x[2])) end
end
if keeping then call('SET', keeping, cmsgpack.pack(unpack(reply)), 'PX', 60000) end
return takes and reply or 1                            -- a number is read faster than a list
