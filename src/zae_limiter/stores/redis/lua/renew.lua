-- Let slots of calls in flight be due later, as if they were lent now. Those that were returned already are taken again,
-- without asking: the calls are running.
-- KEYS: the namespace, the buckets, and last the marks.
-- ARGV: 1 prefix, 2 now or '', 3 bit in the marks, 4 flags as for a draw, 5 JSON: [[entity, resource, [[name, slots, due,
--       life], …]], …], 6 periods of calendars (kinds.lua).
-- Reply: {1, now, then due, life, ttl and 1 if they were lost of every one; due 0: there is no such limit any more}, or
-- {code, now}: -3, -4, -12, -13 as for a draw.
local prefix, mark, flags = ARGV[1], ARGV[3], string.sub(ARGV[4], 1, 1)
local now = clock(ARGV[2])
local state = call('HGET', KEYS[1], 'state')
if state ~= 'live' then return refusal(state, now) end
told_periods = ARGV[6]
local keeping = reply_key(prefix, KEYS[#KEYS], mark)
local kept = call('GET', keeping)
if call('GETBIT', KEYS[#KEYS], mark) == 1 then return kept and { cmsgpack.unpack(kept) } or { -13, now } end
local life = life_of_buckets(prefix, now, ARGV[4])
kinds = make_kinds()
local todo, mine = {}, {}
local buckets = cjson.decode(ARGV[5])
for n, bucket in ipairs(buckets) do
  local entity, resource = bucket[1], bucket[2]
  local key = life.key('b', entity, resource)
  local stored = call('GET', key)
  local b, t
  mine[entity] = true
  if stored then
    b = { cmsgpack.unpack(stored) }
    t = { cmsgpack.unpack(b[1]) }
  else
    local v = life.version(entity, resource, life.wide(resource))
    if v then b, t = life.current(nil, entity, resource, v, nil, true) end
  end
  if b then advance(b, t, now) end
  todo[n] = { entity, resource, key, b, t, bucket[3], not stored }
end
local unknown = unknown_periods(now)
if unknown then return unknown end
for _, x in ipairs(todo) do                            -- what harms no caller if it is done in vain
  if x[4] then
    if now - x[4][5] >= 3600000 then x[4], x[5] = life.begin_hour(x[4], x[5], x[1], x[2]) end
    if x[7] then life.enlist(x[1], x[2], mine) end
  end
end
call('SETBIT', KEYS[#KEYS], mark, 1)
if flags == '2' or flags == '3' then call('PEXPIRE', KEYS[#KEYS], 600000) end
local reply = { 1, now }
local function tell(...) for _, value in ipairs({ ... }) do reply[#reply + 1] = value end end
local function renew(b, t, name, slots, due, of)
  for i = 5, b and #b - 6 or 0, 6 do
    local j = 3 + (i - 5) / 6 * 10
    local kind, x, ttl = t[j + 10], b[i + 6], t[j + 4]
    if t[j + 1] == name and (kind == 'h' or kind == 'wh') then
      local later = kinds.renew(b[i + 1], x, ttl, slots, due, of, now)
      if later then return tell(later, x[3], ttl, 0) end
      b[i + 1], later = kinds.lend(b[i + 1], x, ttl, slots, now)
      b[i + 3] = b[i + 3] + slots
      return tell(later, x[3], ttl, 1)
    end
  end
  tell(0, 0, 0, 1)
end
for _, x in ipairs(todo) do
  for _, hold in ipairs(x[6]) do renew(x[4], x[5], unpack(hold)) end
  if x[4] then
    life.save(x[3], x[4], x[5])
    if x[7] then call('DEL', life.key('k', x[1], x[2])) end
  end
end
call('SET', keeping, cmsgpack.pack(unpack(reply)), 'PX', 60000)
return reply
