-- Take all or nothing from every leg, or look what a draw would meet.
-- KEYS: the namespace, entity and bucket of each leg that the client knows of, and last the marks.
-- ARGV: 1 prefix, 2 entity, 3 resource, 4 now or '', 5 bit in the marks ('' = only look), 6 flags: 1 it may have been done,
--       2 the marks need an expiry, 7 signature of the route that the client knows, 8 options as JSON or '', 9 the server's
--       time at which the caller has given up, or '', then name, amount, name, amount, …
-- Reply: doubles in a string (1 granted or 0 denied, now, then T and m of every limit of every leg); with the route if the
-- client knows another: {doubles, signature, route}. Or {code, now, …}: -1 unknown limit name, -2 no limits, -3 no such
-- namespace, -4 deleted, -5 a counter would pass 9e15, -6 too late, -7 too many retired limits.
--
-- The order is a rule, for while a slot migrates a script may be stopped before any access to a key: first all reads, then
-- what harms no caller if it is done in vain, then the mark, and then only keys that were read before.
local prefix, resource, mark, flags = ARGV[1], ARGV[3], ARGV[5], ARGV[6]
local now = clock(ARGV[4])
if ARGV[9] ~= '' and now > tonumber(ARGV[9]) then return { -6, now } end
local vr = 'v/' .. resource
local wide = call('HMGET', KEYS[1], 'state', vr, 'v', 'policy')
if wide[1] ~= 'live' then return refusal(wide[1], now) end
local wanted, asked = {}, 0
for i = 10, #ARGV, 2 do wanted[ARGV[i]] = tonumber(ARGV[i + 1]); asked = asked + 1 end
local life, given, legs, reserved
if ARGV[8] ~= '' then
  local options = cjson.decode(ARGV[8])
  given, legs, reserved = options.given, options.legs, options.reserved   -- legs: a lease takes more where it took first
end

-- The route: the entity, and upwards while each cascades; each bucket as it is now, under the limits that hold.
local ids, keys, bs, ts, fresh = {}, {}, {}, {}, {}
local signature = wide[4] or '-'                       -- what an outage means: the client must know that before one comes
local at, depth, count, known, enough, overflow = ARGV[2], 0, 0, 0, true, false
repeat
  depth = depth + 1
  local e = call('HMGET', prefix .. 'e#' .. at, 'p', vr, 'v/_default_')
  local v, terms = e[2] or e[3] or wide[2] or wide[3], nil
  if given and depth == 1 then v, terms = given.v, given.terms end
  if legs and (legs[depth].call or not v) then v, terms = legs[depth].v, legs[depth].terms end
  if v then
    local key = prefix .. 'b#' .. at .. '#' .. resource
    local stored = call('GET', key)
    local b, t, new
    if stored then
      b = { cmsgpack.unpack(stored) }
      t = { cmsgpack.unpack(b[1]) }
    end
    if not stored or t[1] ~= v then
      life = life or life_of_buckets(prefix, now)
      b, t = life.current(stored, at, resource, v, terms)
      if not b then return { -7, now, at, resource, t } end
      new = stored and 'adopted' or 'born'
    end
    advance(b, t, now)
    local held = reserved and reserved[at]
    local j = 4
    for i = 5, 1 + 4 * t[2], 4 do
      local amount = wanted[t[j]]
      if amount then
        if count == 0 then known = known + 1 end
        if b[i + 2] + amount > 9e15 then overflow = true end
        if held and amount > 0 then amount = amount + (held[t[j]] or 0) end
      end
      if b[i] < (amount or 0) then enough = false end
      j = j + 10
    end
    count = count + 1
    ids[count], keys[count], bs[count], ts[count], fresh[count] = at, key, b, t, new
    signature = signature .. '#' .. at .. '#' .. v
  elseif depth == 1 then
    return { -2, now }
  end
  if legs then at = legs[depth + 1] and legs[depth + 1].id else at = e[1] end
until not at

local route = false
if signature ~= ARGV[7] then                           -- the client knows another
  life = life or life_of_buckets(prefix, now)
  local told, d = {}, life.decimal
  for n = 1, count do
    local t, limits = ts[n], {}
    for j = 3, 3 + (t[2] - 1) * 10, 10 do
      limits[#limits + 1] = '["' .. t[j + 1] .. '",' .. d(t[j + 2]) .. ',' .. d(t[j + 3]) .. ',' .. d(t[j + 4]) .. ',' .. d(t[j + 5]) .. ']'
    end
    told[n] = '[' .. cjson.encode(ids[n]) .. ',' .. cjson.encode(resource) .. ',"' .. t[1] .. '",[' .. table.concat(limits, ',') .. ']]'
  end
  route = '[' .. table.concat(told, ',') .. ']'
end
if known ~= asked then return { -1, now, signature, route } end

local code = enough and 1 or 0
if mark ~= '' then
  local marks = KEYS[#KEYS]
  if (flags == '1' or flags == '3') and call('GETBIT', marks, mark) == 1 then
    code = 1
  elseif not enough then                               -- new terms are kept: a raised limit must not stay refused
    for n = 1, count do if fresh[n] == 'adopted' then life.save(keys[n], bs[n], ts[n]) end end
  elseif overflow then
    return { -5, now }
  else
    local moved, mine = {}, {}                         -- moved: buckets whose expiry has to be set anew
    for n = 1, count do mine[ids[n]] = true end
    for n = 1, count do
      moved[n] = fresh[n] or ts[n][3] == 1
      if now - bs[n][4] >= 3600000 then
        life = life or life_of_buckets(prefix, now)
        bs[n], ts[n] = life.begin_hour(bs[n], ts[n], ids[n], resource)
        moved[n] = true
      end
      if fresh[n] == 'born' then life.enlist(ids[n], resource, mine) end
    end
    if call('SETBIT', marks, mark, 1) == 0 then        -- else its repeat was faster
      if flags == '2' or flags == '3' then call('PEXPIRE', marks, 600000) end
      for n = 1, count do
        local b, t, j = bs[n], ts[n], 4
        b[3] = b[3] + 1
        for i = 5, 1 + 4 * t[2], 4 do
          local amount = wanted[t[j]]
          if amount then b[i], b[i + 2] = b[i] - amount, b[i + 2] + amount end
          j = j + 10
        end
        if moved[n] then
          life = life or life_of_buckets(prefix, now)
          life.save(keys[n], b, t)
          if fresh[n] == 'born' then call('DEL', life.key('k', ids[n], resource)) end
        else
          call('SET', keys[n], cmsgpack.pack(unpack(b)), 'KEEPTTL')
        end
      end
    end
  end
end
local numbers, r = { code, now }, 2                    -- doubles in a string: cheap to make, and decoded only if they are looked at
for n = 1, count do
  local b = bs[n]
  for i = 5, 1 + 4 * ts[n][2], 4 do
    numbers[r + 1], numbers[r + 2] = b[i], b[i + 1]
    r = r + 2
  end
end
local packed = struct.pack('>' .. string.rep('d', r), unpack(numbers))
if route then return { packed, signature, route } end
return packed
