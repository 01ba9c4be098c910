-- Book after the fact: debits into debt if need be, credits up to the ceiling.
-- KEYS: the namespace, the buckets, and last the marks.
-- ARGV: 1 prefix, 2 now or '', 3 bit in the marks, 4 flags as for a draw,
--       5 JSON: [[entity, resource, {name: tokens}, [names that an earlier leg counts too], version, terms], …]; positive
--       taken, negative given back. Version and terms are of the limits that were drawn from; they are left out until the
--       script asks for them.
--       6 JSON of the record that goes with it, or ''.
-- Reply: {1, now}, or {code, now}: -3, -4, -5 as for a draw; -8 say the terms; -11 the record is another one, which follows.
local prefix, mark, flags = ARGV[1], ARGV[3], ARGV[4]
local now = clock(ARGV[2])
local state = call('HGET', KEYS[1], 'state')
if state ~= 'live' then return refusal(state, now) end
if (flags == '1' or flags == '3') and call('GETBIT', KEYS[#KEYS], mark) == 1 then return { 1, now } end
local record
if ARGV[6] ~= '' then
  record = cjson.decode(ARGV[6])
  local there = call('GET', record.key)
  if there == record.text then return { 1, now } end   -- an earlier try, whose mark is no more
  local found = there and cjson.decode(there)
  if found and (found.st == 'closed' or found.st == 'done') or record.expected ~= (found and found.st ~= 'void' and found.ver or 0) then
    return { -11, now, there or '' }
  end
end
local life
local MAX_RETIRED = 36

-- A limit that has ended, and that a lease still settles, is retired again: it is full.
local function retire_again(b, t, terms, deltas)
  local held, retired = {}, 0
  for j = 3, #t - 10, 10 do
    if t[j + 5] > 0 then held[t[j + 1]] = true; retired = retired + 1 end
  end
  retired = retired - t[2]
  for k = 0, #terms - 10, 10 do
    local name = terms[k + 1]
    if deltas[name] and not held[name] and retired < MAX_RETIRED then
      retired = retired + 1
      local place
      for n = 0, (#t - 13) / 10 do if t[3 + n * 10 + 1] == name then place = n end end
      place = place or (#t - 3) / 10
      for x = 1, 10 do t[3 + place * 10 + x] = terms[k + x] end
      local i = 5 + place * 6
      b[i + 1], b[i + 2], b[i + 3] = terms[k + 5], 0, b[i + 3] or 0
      b[i + 4], b[i + 5], b[i + 6] = b[i + 4] or 0, b[i + 5] or 0, ''
    end
  end
  b[1] = cmsgpack.pack(unpack(t))
end

local function lacks_name(t, deltas)
  local held = {}
  for j = 3, #t - 10, 10 do if t[j + 5] > 0 then held[t[j + 1]] = true end end
  for name in pairs(deltas) do if not held[name] then return true end end
  return false
end

local postings, todo, mine = cjson.decode(ARGV[5]), {}, {}
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
    life = life or life_of_buckets(prefix, now)
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
  local changes, j = {}, 3
  for i = 5, #b - 6, 6 do
    local amount = t[j + 5] > 0 and deltas[t[j + 1]]
    if amount then
      local tokens, m = booked(b[i + 1], b[i + 2], amount, t[j + 5])
      if tokens < -8e15 or math.abs(b[i + 3] + amount) > 9e15 then return { -5, now } end
      local part = 0
      for _, name in ipairs(parts) do if name == t[j + 1] then part = amount end end
      changes[#changes + 1] = { t[j + 1], tokens, m, b[i + 3] + amount, b[i + 4] + part }
    end
    j = j + 10
  end
  todo[p] = { entity, resource, key, b, t, changes, not stored, moved }
end
for _, x in ipairs(todo) do                            -- what harms no caller if it is done in vain
  if now - x[4][5] >= 3600000 then
    life = life or life_of_buckets(prefix, now)
    x[4], x[5] = life.begin_hour(x[4], x[5], x[1], x[2])
    x[8] = true
  end
  if x[7] then life.enlist(x[1], x[2], mine) end
end
if record then list_record(prefix, record) end
if call('SETBIT', KEYS[#KEYS], mark, 1) == 1 then return { 1, now } end
if flags == '2' or flags == '3' then call('PEXPIRE', KEYS[#KEYS], 600000) end
if record then call('SET', record.key, record.text, 'PX', record.px) end
for _, x in ipairs(todo) do
  local b, t = x[4], x[5]
  for _, change in ipairs(x[6]) do
    local j = 3
    for i = 5, #b - 6, 6 do
      if t[j + 1] == change[1] then b[i + 1], b[i + 2], b[i + 3], b[i + 4] = unpack(change, 2, 5) end
      j = j + 10
    end
  end
  life = life or life_of_buckets(prefix, now)
  life.save(x[3], b, t)
  if x[7] then call('DEL', life.key('k', x[1], x[2])) end
end
return { 1, now }
