-- The draw and the settlement of most calls, without what they do not need: no options, a route that the client knows, buckets
-- that live, whose limits are all even and whose hour has begun, enough of everything, no switch, no claim, no total. What
-- finds anything else returns nothing, has written nothing, and the script goes its whole way. It answers as that would.
local function plain_draw(prefix, resource, now)
  local vr, ar = 'v/' .. resource, 'a/' .. resource
  local wide = call('HMGET', KEYS[1], 'state', vr, 'v', 'policy', ar, 'a', 'q')
  if wide[1] ~= 'live' or wide[5] or wide[6] or wide[7] and now < tonumber(wide[7]) then return end
  local wanted, asked = {}, 0
  for i = 11, #ARGV, 2 do wanted[ARGV[i]] = tonumber(ARGV[i + 1]); asked = asked + 1 end
  local signature = (wide[4] or '-') .. '#' .. (wide[2] or '') .. '#' .. (wide[3] or '')
  local at, legs, bs, ts, keys = ARGV[2], 0, {}, {}, {}
  repeat
    local e = call('HMGET', prefix .. 'e#' .. at, 'p', vr, 'v/_default_', 'v/*', ar, 'a/_default_')
    local v, key = e[2] or e[3] or wide[2] or wide[3], prefix .. 'b#' .. at .. '#' .. resource
    local stored = v and not e[4] and not e[5] and not e[6] and call('GET', key)
    if not stored then return end
    local b = { cmsgpack.unpack(stored) }
    local t = { cmsgpack.unpack(b[1]) }
    if t[1] ~= v or t[3] ~= 0 or now - b[5] >= 3600000 then return end
    advance(b, t, now)
    local j, known = 4, 0
    for i = 6, 6 * t[2], 6 do
      local amount = wanted[t[j]]
      if amount then
        known = known + 1
        if b[i + 2] + amount > 9e15 then return end
      end
      if b[i] < (amount or 0) then return end
      j = j + 10
    end
    if legs == 0 and known ~= asked then return end    -- so later legs count nothing that the first has not
    legs = legs + 1
    bs[legs], ts[legs], keys[legs] = b, t, key
    signature = signature .. '#' .. at .. '#' .. (e[2] or '') .. '#' .. (e[3] or '') .. '#'
    at = e[1]
  until not at
  if signature ~= ARGV[7] then return end
  local takes = call('SETBIT', KEYS[#KEYS], ARGV[5], 1) == 0   -- else its repeat was faster
  local numbers, r = { 1, now }, 2
  for n = 1, legs do
    local b, t, j = bs[n], ts[n], 4
    if takes then
      b[3] = b[3] + 1
      if n > 1 then b[4] = b[4] + 1 end
    end
    for i = 6, 6 * t[2], 6 do
      local amount = takes and wanted[t[j]]
      if amount then
        b[i], b[i + 2] = b[i] - amount, b[i + 2] + amount
        if n > 1 then b[i + 3] = b[i + 3] + amount end
      end
      numbers[r + 1], numbers[r + 2], numbers[r + 3] = b[i], b[i + 1], b[i + 2]
      r = r + 3
      j = j + 10
    end
    if takes then call('SET', keys[n], cmsgpack.pack(unpack(b)), 'KEEPTTL') end
  end
  return struct.pack('>' .. string.rep('d', r), unpack(numbers))
end

local function plain_settle(prefix, postings, now)
  local bs = {}
  for n, posting in ipairs(postings) do
    local stored = #posting == 4 and call('GET', prefix .. 'b#' .. posting[1] .. '#' .. posting[2])
    if not stored then return end
    local b = { cmsgpack.unpack(stored) }
    local t = { cmsgpack.unpack(b[1]) }
    if t[3] ~= 0 or now - b[5] >= 3600000 then return end
    advance(b, t, now)
    local deltas, parts, j, found = posting[3], posting[4], 3, 0
    for i = 5, #b - 6, 6 do
      local name = t[j + 1]
      local amount = deltas[name]
      if amount then
        found = found + 1
        local tokens, m = booked(b[i + 1], b[i + 2], amount, t[j + 5])
        local count = b[i + 3] + amount
        if t[j + 5] == 0 or tokens < 0 or math.abs(count) > 9e15 then return end   -- it has ended, or owes: its expiry moves
        b[i + 1], b[i + 2], b[i + 3] = tokens, m, count
        for _, part in ipairs(parts) do if part == name then b[i + 4] = b[i + 4] + amount end end
      end
      j = j + 10
    end
    for _ in pairs(deltas) do found = found - 1 end
    if found ~= 0 then return end                      -- it does not have one of them, or has two of a name
    bs[n] = b
  end
  if call('SETBIT', KEYS[#KEYS], ARGV[3], 1) == 1 then return 1 end
  for n, posting in ipairs(postings) do
    call('SET', prefix .. 'b#' .. posting[1] .. '#' .. posting[2], cmsgpack.pack(unpack(bs[n])), 'KEEPTTL')
  end
  return 1
end
