-- What the scripts know about the life of a bucket. Seldom needed, so these functions are made only when they are:
-- a bucket that is new, an hour that begins, limits that changed.
local call = redis.call

local function clock(given)                            -- bucket time: the given one, or this server's own
  if given ~= '' then return tonumber(given) end
  local t = call('TIME')
  return t[1] * 1000 + floor(t[2] / 1000)
end

local function refusal(state, now) return { state == 'deleted' and -4 or -3, now } end

local function unknown_periods(now)                    -- the answer that asks for them, if any are missing
  return kinds and kinds.missing[1] and { -12, now, unpack(kinds.missing) }
end

-- Where the reply of a write that lends slots is kept, so that its repeat is told the same due times.
local function reply_key(prefix, marks, mark) return prefix .. 'y' .. string.sub(marks, #prefix + 2) .. '.' .. mark end

-- Lists the record of a lease until it expires. That harms no caller if it is done in vain: the record is looked up by its id.
local function list_record(prefix, record)
  call('ZREMRANGEBYSCORE', prefix .. 'leases', '-inf', '(' .. record.now)
  call('ZADD', prefix .. 'leases', record.expires, record.member)
end

local function life_of_buckets(prefix, now, told)      -- told: the argument with the flags, if hours may begin
  local HOUR_MS, DAY_MS = 3600000, 86400000
  local KEPT_MS = 111 * DAY_MS                         -- a bucket outlives the usage that it began
  local CHUNK_MS = 20 * DAY_MS                         -- the hours of usage are kept in hashes of twenty days
  local MAX_RETIRED, MAX_ENDED = 36, 64
  local life = {}

  function life.decimal(x) return string.format('%.0f', x) end
  function life.key(kind, entity, resource) return prefix .. kind .. '#' .. entity .. '#' .. resource end
  function life.wide(resource) return call('HMGET', prefix .. 'c', 'state', 'v/' .. resource, 'v') end

  -- The version of the first of the four levels that has limits. It begins with the letter of its level:
  -- e(ntity), d(efault of the entity), t(otal of the entity), r(esource), s(ystem).
  function life.version(entity, resource, wide)
    if resource == '*' then return call('HGET', prefix .. 'e#' .. entity, 'v/*') end
    local e = call('HMGET', prefix .. 'e#' .. entity, 'v/' .. resource, 'v/_default_')
    return e[1] or e[2] or wide[2] or wide[3]
  end

  function life.configured(v, entity, resource)        -- the terms that a version stands for
    local level, text = string.sub(v, 1, 1)
    if level == 'e' or level == 't' then text = call('HGET', prefix .. 'e#' .. entity, 'l/' .. resource)
    elseif level == 'd' then text = call('HGET', prefix .. 'e#' .. entity, 'l/_default_')
    elseif level == 'r' then text = call('HGET', prefix .. 'c', 'l/' .. resource)
    else text = call('HGET', prefix .. 'c', 'l') end
    return cjson.decode(text).terms
  end

  -- The names of limits that any level consulted for an entity has.
  function life.known(entity, resource, into)
    local texts = call('HMGET', prefix .. 'e#' .. entity, 'l/' .. resource, 'l/_default_')
    local wide = call('HMGET', prefix .. 'c', 'l/' .. resource, 'l')
    for _, text in ipairs({ texts[1] or '', texts[2] or '', wide[1] or '', wide[2] or '' }) do
      if text ~= '' then
        for _, limit in ipairs(cjson.decode(text).limits) do into[limit[1]] = true end
      end
    end
  end

  local function figures(taken, cascaded, denials)     -- as taken/cascaded/denials, without noughts at the end
    local text = life.decimal(taken)
    if cascaded ~= 0 or denials ~= 0 then text = text .. '/' .. life.decimal(cascaded) end
    if denials ~= 0 then text = text .. '/' .. life.decimal(denials) end
    return text
  end

  local function sn_of(x) return x ~= '' and x[1] or 0 end

  -- As a row of usage has them; those that have ended with a ~, and what a limit would have refused behind a ! of its name.
  function life.counters(b, t)
    local text, j = { figures(b[3], b[4], 0) }, 3
    for i = 5, #b - 6, 6 do
      local name = (t[j + 5] == 0 and '~' or '') .. t[j + 1]
      text[#text + 1] = name .. '=' .. figures(b[i + 3], b[i + 4], b[i + 5])
      if sn_of(b[i + 6]) > 0 then text[#text + 1] = name .. '!=' .. life.decimal(b[i + 6][1]) end
      j = j + 10
    end
    return table.concat(text, ' ')
  end

  local function same_terms(t, terms)
    if #terms ~= t[2] * 10 then return false end
    for k = 1, #terms do if t[3 + k] ~= terms[k] then return false end end
    return true
  end

  local function copy(from, place, count, to)
    for k = 1, count do to[#to + 1] = from[place + k] end
  end

  -- Limits of calls in flight and others of the same name are two, and either may be retired.
  local function key_of(name, kind) return (kind == 'h' or kind == 'wh') and name .. '/' or name end

  local function is_full(b, t, i, j)
    if t[j + 5] == 0 then return false end
    local tokens = b[i + 1]
    if key_of('', t[j + 10]) ~= '' then tokens = tokens + kinds.overdue(b[i + 6], now) end
    if t[j + 10] ~= '' and kinds.extra(t[j + 10], b[i + 6]) > 0 then return false end
    return tokens == t[j + 5] and b[i + 2] == 0
  end

  local function count_on(nb, nt, name, counted, sn)   -- let another limit of the same name go on counting
    for i = 5, #nb - 6, 6 do
      if nt[3 + (i - 5) / 6 * 10 + 1] == name then
        for k = 1, 3 do nb[i + 2 + k] = nb[i + 2 + k] + counted[k] end
        if sn > 0 then
          if nb[i + 6] == '' then nb[i + 6] = { 0 } end
          nb[i + 6][1] = nb[i + 6][1] + sn
        end
        return true
      end
    end
  end

  -- Where the limits go that are not in force any more: full ones end, with their counters, others are retired.
  local function retire(b, t, nb, nt, kept)
    local retired, before, ended = 0, 0, 0
    for i = 5, #b - 6, 6 do
      local j = 3 + (i - 5) / 6 * 10
      if t[j + 5] == 0 then ended = ended + 1 elseif (i - 5) / 6 >= t[2] then before = before + 1 end
    end
    local full = {}
    for i = 5, #b - 6, 6 do
      local j = 3 + (i - 5) / 6 * 10
      if not kept[i] and is_full(b, t, i, j) then
        full[#full + 1] = i
      elseif not kept[i] then
        if t[j + 5] > 0 then retired = retired + 1 end
        copy(t, j, 10, nt)
        copy(b, i, 6, nb)
      end
    end
    for _, i in ipairs(full) do
      local j = 3 + (i - 5) / 6 * 10
      local counted, sn = { b[i + 3], b[i + 4], b[i + 5] }, sn_of(b[i + 6])
      local counts = counted[1] ~= 0 or counted[3] ~= 0 or sn ~= 0
      if counts and not count_on(nb, nt, t[j + 1], counted, sn) then
        if ended < MAX_ENDED then
          ended = ended + 1
          copy({ t[j + 1], 0, 0, 0, 0, 0, 0, 0, 1, '' }, 0, 10, nt)
          copy({ 0, 0, counted[1], counted[2], counted[3], sn > 0 and { sn } or '' }, 0, 6, nb)
        else
          retired = retired + 1
          copy(t, j, 10, nt)
          copy(b, i, 6, nb)
        end
      end
    end
    return retired, math.max(MAX_RETIRED, before)
  end

  -- One that takes long to fill, or that has limits of other kinds, has its expiry moved with every write.
  local function note_care(nt)
    for j = 3, #nt - 10, 10 do
      if nt[j + 10] ~= '' then
        nt[3] = 2
        return
      elseif nt[j + 5] > 0 and nt[j + 5] * 1000 / (nt[j + 6] * 1000 + nt[j + 7] + nt[j + 8] / nt[j + 9]) > 90 * DAY_MS then
        nt[3] = 1
      end
    end
  end

  local function new_life()                            -- of a limit of calls in flight: no other one has it
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
  end

  -- Tokens, millitokens and x of one limit under its new terms; i is where it was, if it was there.
  local function rebased(b, t, i, terms, j, sn)
    local top, kind = terms[j + 5], terms[j + 10]
    local was = i and 3 + (i - 5) / 6 * 10
    if kind == '' and (not i or t[was + 10] == '') then
      local x = sn > 0 and { sn } or ''
      if i and b[i + 1] < top then return b[i + 1], b[i + 2], x end
      return top, 0, x
    end
    kinds = kinds or make_kinds()
    local old
    if i then
      old = { tokens = b[i + 1], m = b[i + 2], top = t[was + 5], step = t[was + 3], kind = t[was + 10], x = b[i + 6] }
    end
    local held = not i and key_of('', kind) ~= ''
    return kinds.rebased(kind, top, terms[j + 3], sn, old, b[2], held and new_life())
  end

  -- Make these terms those of the bucket from now on: a lower burst clamps, a higher one mints nothing; of limits by the
  -- calendar and of calls in flight the difference counts. If more limits would be retired than a bucket may have: nil, and
  -- their number.
  function life.adopt(b, t, v, terms, unbounded)
    advance(b, t, now)
    if same_terms(t, terms) then
      t[1] = v
      b[1] = cmsgpack.pack(unpack(t))
      return b, t
    end
    local at, ended, kept = {}, {}, {}
    for i = 5, #b - 6, 6 do
      local j = 3 + (i - 5) / 6 * 10
      if t[3] == 2 and kinds.parsed(t[j + 10]).boundaries then kinds.begin_period(b, t, i, j, b[2]) end   -- retired ones too
      if t[j + 5] == 0 then ended[t[j + 1]] = i else at[key_of(t[j + 1], t[j + 10])] = i end
    end
    local nt, nb = { v, #terms / 10, 0 }, { '', b[2], b[3], b[4], b[5] }
    for j = 0, #terms - 10, 10 do
      local i, e = at[key_of(terms[j + 1], terms[j + 10])], ended[terms[j + 1]]
      local counted, sn = { 0, 0, 0 }, 0
      for _, place in ipairs({ i or e, i and e }) do
        for k = 1, 3 do counted[k] = counted[k] + b[place + 2 + k] end
        sn = sn + sn_of(b[place + 6])
        kept[place] = true
      end
      local tokens, m, x = rebased(b, t, i, terms, j, sn)
      copy(terms, j, 10, nt)
      copy({ tokens, m, counted[1], counted[2], counted[3], x }, 0, 6, nb)
    end
    local retired, most = retire(b, t, nb, nt, kept)
    if retired > most and not unbounded then return nil, retired end
    note_care(nt)
    nb[1] = cmsgpack.pack(unpack(nt))
    return nb, nt
  end

  local function counted_before(entity, resource)      -- a new bucket goes on counting where an earlier life ended
    local b, t, at = { '', now, 0, 0, 0 }, { '', 0, 0 }, {}
    local kept = call('GET', life.key('k', entity, resource))
    if kept then
      local events, cascaded = string.match(kept, '^(%d+)/?(%d*)')
      b[3], b[4] = tonumber(events), tonumber(cascaded) or 0
      for name, figure in string.gmatch(kept, '~?([^%s=]+)=(%S+)') do
        local taken, part, denials = string.match(figure, '^(%-?%d+)/?(%-?%d*)/?(%d*)$')
        local figures = { tonumber(taken), tonumber(part) or 0, tonumber(denials) or 0 }
        local watched = string.match(name, '^(.*)!$')
        local place = at[watched or name]
        if name == '@' then
          b[5] = figures[1]                            -- the hour it was last written in goes on, if that is not over
        elseif watched then                            -- behind the limit it belongs to
          b[place + 6] = { sn_of(b[place + 6]) + figures[1] }
        elseif place then                              -- calls in flight, and another limit of the same name
          for k = 1, 3 do b[place + 2 + k] = b[place + 2 + k] + figures[k] end
        else
          at[name] = #b
          copy({ name, 0, 0, 0, 0, 0, 0, 0, 1, '' }, 0, 10, t)
          copy({ 0, 0, figures[1], figures[2], figures[3], '' }, 0, 6, b)
        end
      end
    end
    return b, t
  end

  -- The bucket that was stored, or a new one, under the terms of version v.
  function life.current(stored, entity, resource, v, given, unbounded)
    local b, t
    if stored then
      b = { cmsgpack.unpack(stored) }
      t = { cmsgpack.unpack(b[1]) }
      if t[1] == v then return b, t end
    else
      b, t = counted_before(entity, resource)
    end
    return life.adopt(b, t, v, given or life.configured(v, entity, resource), unbounded)
  end

  local function without_ended(b, t)                   -- they were counted to the end of their hour
    local nb, nt = { '', b[2], b[3], b[4], b[5] }, { t[1], t[2], t[3] }
    for i = 5, #b - 6, 6 do
      local j = 3 + (i - 5) / 6 * 10
      if t[j + 5] > 0 then copy(t, j, 10, nt); copy(b, i, 6, nb) end
    end
    nb[1] = cmsgpack.pack(unpack(nt))
    return nb, nt
  end

  -- The first write of an hour notes what was counted before it.
  function life.begin_hour(b, t, entity, resource)
    local hour = now - now % HOUR_MS
    local days = tonumber(string.sub(told, 3)) or 90   -- for so many, usage is kept
    local chunk, field = floor(hour / CHUNK_MS), life.decimal(hour / HOUR_MS)
    local tail = '#' .. entity .. '#' .. resource
    local key, text = prefix .. 'u#' .. life.decimal(chunk) .. tail, life.counters(b, t)
    local is_new = days == 0
    if days > 0 then
      if b[3] == 0 and b[5] == 0 and call('EXISTS', key, prefix .. 'u#' .. life.decimal(chunk - 1) .. tail) > 0 then
        text = '*' .. text                             -- it counts from nothing, yet there was something: verify shall say so
        call('HSET', key, field, text)
      end
      is_new = call('HSETNX', key, field, text) == 1 or call('HGET', key, field) == text
      call('PEXPIRE', key, life.decimal((chunk + 1) * CHUNK_MS - now + days * DAY_MS))
    end
    b[5] = hour
    if is_new and string.find(text, '~', 1, true) then return without_ended(b, t) end
    return b, t
  end

  -- Buckets by resource. Two names are looked at in passing and removed if they are dead, so that no more are dead than
  -- alive; never those of the same draw, which are about to live.
  function life.enlist(entity, resource, mine)
    local on = prefix .. 'on#' .. resource
    call('ZADD', on, 0, entity)
    call('ZADD', prefix .. 'res', 0, resource)
    for _, other in ipairs(call('ZRANDMEMBER', on, 2)) do
      if not mine[other] and call('EXISTS', life.key('b', other, resource), life.key('k', other, resource)) == 0 then
        call('ZREM', on, other)
      end
    end
  end

  function life.save(key, b, t)                        -- until it is full again, at least; and at most three centuries
    local kept, j = KEPT_MS, 3
    for i = 5, #b - 6, 6 do
      if t[j + 5] > 0 then
        local rate = t[j + 6] * 1000 + t[j + 7] + t[j + 8] / t[j + 9]
        local full = (t[j + 5] - b[i + 1]) * 1000 / rate * 1.000001 + 60000
        if rate == 0 then
          kinds = kinds or make_kinds()
          full = kinds.full_in(b, t, i, j, now) + 60000
        end
        if full > kept then kept = math.min(full, 1e13) end
      end
      j = j + 10
    end
    call('SET', key, cmsgpack.pack(unpack(b)), 'PX', life.decimal(floor(kept)))
  end

  function life.drop(entity, resource, key, b, t)      -- its counters stay: the next life goes on from them
    call('SET', life.key('k', entity, resource), life.counters(b, t) .. ' @=' .. life.decimal(b[5]), 'PX', life.decimal(KEPT_MS))
    call('DEL', key)
  end

  return life
end
