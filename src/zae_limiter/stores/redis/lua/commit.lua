-- Change what is configured, if nothing was changed since it was read.
-- KEYS: the namespace, then every key that the writes name, and last the marks.
-- ARGV: 1 prefix, 2 now or '', 3 bit in the marks, 4 flags as for a draw, 5 epoch that was read, or '' to change buckets only,
--       6 JSON of writes: commands, or ['@adopt', entity, resource], ['@reset', entity, resource or '', {name: 1} or nil],
--       ['@drop', entity], ['@lower', entity, resource, {name: tokens}], ['@credit', entity, resource, {name: tokens}],
--       ['@lift', entity, resource, {name: tokens}] above the ceilings of limits by the calendar, in their period,
--       ['@deny', entity, resource, name]. 7 periods of calendars (kinds.lua).
-- Reply: {1, now, buckets changed}, {0, now} if the epoch is another, or {code, now} as for a draw.
-- The epoch and the mark are last: a script that was stopped on the way, while a slot migrates, is done again, and every
-- write here may be.
local prefix, mark, flags = ARGV[1], ARGV[3], string.sub(ARGV[4], 1, 1)
local now = clock(ARGV[2])
local epoch, state = unpack(call('HMGET', KEYS[1], 'epoch', 'state'), 1, 2)
if state ~= 'live' then return refusal(state, now) end
if call('GETBIT', KEYS[#KEYS], mark) == 1 then return { 1, now, -1 } end
if ARGV[5] ~= '' and epoch ~= ARGV[5] then return { 0, now } end
told_periods = ARGV[7]
local life = life_of_buckets(prefix, now, ARGV[4])
local writes, count = cjson.decode(ARGV[6]), 0

local function each_bucket(write, see)                 -- those that a write of buckets concerns
  local resource = write[3] or ''
  for _, r in ipairs(resource ~= '' and { resource } or call('ZRANGE', prefix .. 'res', 0, -1)) do
    local key = life.key('b', write[2], r)
    local stored = call('GET', key)
    if stored or write[1] == '@lower' or write[1] == '@lift' then see(write[2], r, key, stored, write[4]) end   -- one that is not there is full
  end
end

local function look_for_periods(entity, r, key, stored)    -- all that the write will need, before anything is written
  local v = life.version(entity, r, life.wide(r)) or stored and cmsgpack.unpack((cmsgpack.unpack(stored)))
  if v then
    local b, t = life.current(stored, entity, r, v, nil, true)
    advance(b, t, now)
  end
end
for _, write in ipairs(writes) do
  if string.sub(write[1], 1, 1) == '@' and write[1] ~= '@drop' and write[1] ~= '@deny' then each_bucket(write, look_for_periods) end
end
local unknown = unknown_periods(now)
if unknown then return unknown end

local function ceiling(b, t, i, j)                     -- with what is extra in this period
  return t[j + 5] + (t[j + 10] ~= '' and kinds.extra(t[j + 10], b[i + 6]) or 0)
end

local acts = {}
acts['@adopt'] = function(entity, r, key, stored)
  local v = life.version(entity, r, life.wide(r))
  if not v or cmsgpack.unpack((cmsgpack.unpack(stored))) == v then return end
  local b, t = life.current(stored, entity, r, v)
  if b then life.save(key, b, t) end                   -- else it keeps its limits until some that are retired are full
end
acts['@reset'] = function(entity, r, key, stored, only)
  local b = { cmsgpack.unpack(stored) }
  local t = { cmsgpack.unpack(b[1]) }
  advance(b, t, now)
  for i = 5, #b - 6, 6 do
    local j = 3 + (i - 5) / 6 * 10
    if not only or only[t[j + 1]] then
      b[i + 1], b[i + 2] = ceiling(b, t, i, j), 0
      if t[j + 10] == 'h' or t[j + 10] == 'wh' then b[i + 6] = kinds.refilled(b[i + 6]) end
    end
  end
  life.save(key, b, t)
end
acts['@credit'] = function(entity, r, key, stored, amounts)
  local v = life.version(entity, r, life.wide(r))
  if not v then return end
  local b, t = life.current(stored, entity, r, v, nil, true)
  advance(b, t, now)
  for i = 5, 6 * t[2], 6 do
    local j = 3 + (i - 5) / 6 * 10
    local amount = amounts[t[j + 1]]
    if amount then b[i + 1], b[i + 2] = booked(b[i + 1], b[i + 2], -amount, ceiling(b, t, i, j)) end
  end
  life.save(key, b, t)
end
acts['@drop'] = function(entity, r, key, stored)
  local b = { cmsgpack.unpack(stored) }
  life.drop(entity, r, key, b, { cmsgpack.unpack(b[1]) })
end
local function change_levels(entity, r, key, stored, change)   -- a bucket that is not there begins its life
  local v = life.version(entity, r, life.wide(r))
  if not v then return end
  local b, t = life.current(stored, entity, r, v, nil, true)
  advance(b, t, now)
  for i = 5, 6 * t[2], 6 do change(b, t, i, 3 + (i - 5) / 6 * 10) end
  if now - b[5] >= 3600000 then b, t = life.begin_hour(b, t, entity, r) end
  if not stored then life.enlist(entity, r, { [entity] = true }) end
  life.save(key, b, t)
  if not stored then call('DEL', life.key('k', entity, r)) end
end
acts['@lower'] = function(entity, r, key, stored, levels)
  change_levels(entity, r, key, stored, function(b, t, i, j)
    local level = levels[t[j + 1]]
    if level and b[i + 1] >= level then b[i + 1], b[i + 2] = level, 0 end
  end)
end
acts['@lift'] = function(entity, r, key, stored, amounts)
  change_levels(entity, r, key, stored, function(b, t, i, j)
    local amount = t[j + 10] ~= '' and kinds.parsed(t[j + 10]).boundaries and amounts[t[j + 1]]
    if amount then b[i + 1] = kinds.lift(b[i + 6], b[i + 1], amount) end
  end)
end
acts['@deny'] = function(entity, r, key, stored, name)
  local b = { cmsgpack.unpack(stored) }
  local t = { cmsgpack.unpack(b[1]) }
  if now - b[5] >= 3600000 then b, t = life.begin_hour(b, t, entity, r) end
  for i = 5, #b - 6, 6 do
    if t[3 + (i - 5) / 6 * 10 + 1] == name then
      b[i + 5] = b[i + 5] + 1
      break                                            -- the one in force is the first of its name
    end
  end
  life.save(key, b, t)
end
for _, write in ipairs(writes) do
  local act = acts[write[1]]
  if act then
    each_bucket(write, function(...)
      act(...)
      count = count + 1
    end)
  else
    call(unpack(write))
  end
end
if ARGV[5] ~= '' then call('HINCRBY', KEYS[1], 'epoch', 1) end
call('SETBIT', KEYS[#KEYS], mark, 1)
call('PEXPIRE', KEYS[#KEYS], 600000)
return { 1, now, count }
