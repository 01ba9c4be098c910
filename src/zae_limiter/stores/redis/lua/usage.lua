-- The usage of one bucket in one moment: what it has counted, and every hour's row.
-- KEYS: the namespace. ARGV: 1 prefix, 2 now or '', 3 entity, 4 resource.
-- Reply: 1, now, the live bucket's counters or false, its hour, the counters of a dropped bucket or false, then the hours
-- as field, text, field, text, …
local prefix, entity, resource = ARGV[1], ARGV[3], ARGV[4]
local now = clock(ARGV[2])
local state = call('HGET', KEYS[1], 'state')
if state ~= 'live' then return refusal(state, now) end
local life = life_of_buckets(prefix, now)
local reply = { 1, now, false, 0, call('GET', life.key('k', entity, resource)) }
local stored = call('GET', life.key('b', entity, resource))
local newest = now
if stored then
  local b = { cmsgpack.unpack(stored) }
  reply[3], reply[4] = life.counters(b, { cmsgpack.unpack(b[1]) }), b[5]
  newest = math.max(newest, b[5])
elseif reply[5] then
  newest = math.max(newest, tonumber(string.match(reply[5], '@=(%S+)')))
end
local chunk = floor(newest / 1728000000)
for c = math.max(chunk - 6, 0), chunk do
  for _, x in ipairs(call('HGETALL', prefix .. 'u#' .. life.decimal(c) .. '#' .. entity .. '#' .. resource)) do
    reply[#reply + 1] = x
  end
end
return reply
