-- Buckets as the next draw will find them.
-- KEYS: the namespace. ARGV: 1 prefix, 2 now or '', 3 resource or '' for all, 4 entity or '' for a page of those on the
-- resource, 5 the entity to go on after, 6 how many, 7 periods of calendars (kinds.lua), 8 '1': the access switches of the
-- entity too, on the resource or on all.
-- Reply: 1, now, where to go on or '', the switches, nearest first, each with its entity and resource, then per bucket: entity, resource, the ancestors that its acquires also take from
-- (only in a page of a resource; separated by #), events, events that an earlier leg counted too, hour, limits in force, all
-- limits, and for each limit: name, capacity, amount, period, B, T, m, C, K, D, kind, how many values x has, and those.
local prefix, resource, entity = ARGV[1], ARGV[3], ARGV[4]
local now = clock(ARGV[2])
local state = call('HGET', KEYS[1], 'state')
if state ~= 'live' then return refusal(state, now) end
told_periods = ARGV[7]
local life = life_of_buckets(prefix, now)
local resources = resource ~= '' and { resource } or call('ZRANGE', prefix .. 'res', 0, -1)
local entities, more = { entity }, ''
if entity == '' then
  local from = ARGV[5] == '' and '-' or '(' .. ARGV[5]
  entities = call('ZRANGEBYLEX', prefix .. 'on#' .. resource, from, '+', 'LIMIT', 0, ARGV[6])
  more = #entities == tonumber(ARGV[6]) and entities[#entities] or ''
end
local switches = {}
local function tell_switch(switch, id, on)
  if switch then for _, x in ipairs({ switch, id, on }) do switches[#switches + 1] = x end end
end
local function tell_switches(id)                       -- of an entity
  local key = prefix .. 'e#' .. id
  if resource ~= '' then
    for _, on in ipairs({ resource, '_default_' }) do tell_switch(call('HGET', key, 'a/' .. on), id, on) end
    return
  end
  local fields = call('HKEYS', key)
  table.sort(fields)
  for _, field in ipairs(fields) do
    if string.sub(field, 1, 2) == 'a/' then tell_switch(call('HGET', key, field), id, string.sub(field, 3)) end
  end
end
if ARGV[8] == '1' then
  local at = entity
  while at do
    tell_switches(at)
    at = call('HGET', prefix .. 'e#' .. at, 'p')
  end
  if resource ~= '' then tell_switch(call('HGET', KEYS[1], 'a/' .. resource), '', resource) end
  tell_switch(call('HGET', KEYS[1], 'a'), '', '')
end
local reply, n = { 1, now, more, switches }, 4
local function tell(...) for _, x in ipairs({ ... }) do n = n + 1; reply[n] = x end end
local function above(e, r, wide)
  local found = {}
  local at = entity == '' and call('HGET', prefix .. 'e#' .. e, 'p')
  while at do
    if life.version(at, r, wide) then found[#found + 1] = at end
    at = call('HGET', prefix .. 'e#' .. at, 'p')
  end
  return table.concat(found, '#')
end
for _, r in ipairs(resources) do
  local wide = life.wide(r)
  for _, e in ipairs(entities) do
    local stored = call('GET', life.key('b', e, r))
    if stored then
      local v = life.version(e, r, wide) or cmsgpack.unpack((cmsgpack.unpack(stored)))
      local b, t = life.current(stored, e, r, v, nil, true)
      advance(b, t, now)
      tell(e, r, above(e, r, wide), b[3], b[4], b[5], t[2], (#b - 5) / 6)
      local j = 3
      for i = 5, #b - 6, 6 do
        tell(t[j + 1], t[j + 2], t[j + 3], t[j + 4], t[j + 5], b[i + 1], b[i + 2], b[i + 3], b[i + 4], b[i + 5], t[j + 10], #b[i + 6])
        if b[i + 6] ~= '' then tell(unpack(b[i + 6])) end
        j = j + 10
      end
    end
  end
end
return unknown_periods(now) or reply
