-- Limits of other kinds: by the calendar, of calls in flight, and those that only watch. It equals balances.py.
--
-- The kind of a limit is a text: 'c' and its calendar in words, or 'h' for calls in flight, whose period is the seconds that
-- a slot is held for; before either of them, or alone, 'w' if it only watches. All refill nothing evenly but 'w'. Their x:
--   'w'   {sn}                                  sn counts what it would have refused
--   'c…'  {sn, pn}                              pn is the number of the period at the baseline
--   'c…'  {sn, pn, ex}                          ex: so many tokens it may hold above its ceiling in that period
--   'h'   {sn, hb, life, due, slots, due, …}    hb is the latest due time whose slots were returned, in seconds; life tells
--                                               this limit from one of its name in another life of the bucket
-- A limit that refills evenly and refuses, but once watched, has {sn} as well.
--
-- Periods are numbered by the client, who has the time zones. It tells those around the time it expects: boundaries, number,
-- beginning, end, and the end of the one after. What a script lacks it notes in 'missing', and answers with it before it has
-- written anything: {-12, now, boundaries, time, boundaries, time, …}; for '@number' instead of a time, when that one begins.
make_kinds = function()
  local it = { missing = {} }
  local windows, parsed = {}, {}
  for text, number, begins, ends, last in string.gmatch(told_periods, '(%S+) (%S+) (%S+) (%S+) (%S+)') do
    local told = windows[text] or {}
    windows[text] = told
    told[#told + 1] = { tonumber(number), tonumber(begins), tonumber(ends), tonumber(last) }
  end

  -- {watches, held, boundaries of its calendar, fresh: it carries no debt into its next period}
  function it.parsed(kind)
    local known = parsed[kind]
    if not known then
      local watches = string.sub(kind, 1, 1) == 'w'
      local rest = watches and string.sub(kind, 2) or kind
      known = { watches = watches, held = rest == 'h' }
      if string.sub(rest, 1, 1) == 'c' then
        known.fresh = string.sub(rest, -6) == ',fresh'
        known.boundaries = string.sub(rest, 2, known.fresh and -7 or -1)
      end
      parsed[kind] = known
    end
    return known
  end

  local function ask(boundaries, what)
    it.missing[#it.missing + 1] = boundaries
    it.missing[#it.missing + 1] = what
  end

  function it.period(boundaries, time, quiet)          -- the number of the period a time lies in, when it ends, and how long it is
    for _, w in ipairs(windows[boundaries] or {}) do
      if w[2] <= time and time < w[3] then return w[1], w[3], w[3] - w[2] end
      if w[3] <= time and time < w[4] then return w[1] + 1, w[4], w[4] - w[3] end
    end
    if not quiet then ask(boundaries, string.format('%.0f', time)) end
  end

  local function start(boundaries, number)             -- when a period begins
    for _, w in ipairs(windows[boundaries] or {}) do
      if w[1] <= number and number <= w[1] + 2 then return w[2 + number - w[1]] end
    end
    ask(boundaries, '@' .. string.format('%.0f', number))
  end

  -- Periods to wait for until so much is there. What is left of a token makes no difference: periods bring whole ones.
  local function periods_until(needed, tokens, step, top, fresh)
    local count = math.max(math.ceil((needed - tokens) / step), 0)
    return count > 1 and fresh and needed <= top and 1 or count
  end

  function it.extra(kind, x)                           -- what a limit may hold above its ceiling now
    return it.parsed(kind).boundaries and x[3] or 0
  end

  local function without_extra(tokens, m, ex)          -- what is left of a level when an extra ends
    if ex == 0 or tokens < 0 then return tokens, m end
    if tokens < ex then return 0, 0 end
    return tokens - ex, m
  end

  function it.lift(x, tokens, amount)                  -- the tokens then
    x[3] = (x[3] or 0) + amount
    return tokens + amount
  end

  function it.grown(tokens, m, top, step, periods, fresh)   -- a calendar's level, so many periods later
    local more = step * periods
    if fresh or more >= top - tokens then return top, 0 end
    return tokens + more, m
  end

  function it.overdue(x, now)
    local slots = 0
    for n = 4, #x, 2 do if x[n] * 1000 <= now then slots = slots + x[n + 1] end end
    return slots
  end

  function it.due_time(x, ttl, now)                    -- on a grid; always after what was returned already
    local grid = math.max(floor(ttl / 4), 1)
    local due = math.ceil((now + ttl * 1000) / (grid * 1000)) * grid
    return due > x[2] and due or (floor(x[2] / grid) + 1) * grid
  end

  local function change(x, due, slots)                 -- how many are due at one time
    for n = 4, #x, 2 do
      if x[n] == due then
        x[n + 1] = x[n + 1] + slots
        if x[n + 1] == 0 then table.remove(x, n); table.remove(x, n) end
        return
      end
    end
    if slots ~= 0 then x[#x + 1] = due; x[#x + 1] = slots end
  end

  local function lent_until(x, due)
    for n = 4, #x, 2 do if x[n] == due then return x[n + 1] end end
    return 0
  end

  function it.lend(tokens, x, ttl, slots, now)         -- enough or not; what is free then, and when the slots are due
    local due = it.due_time(x, ttl, now)
    if tokens < slots or lent_until(x, due) == 0 then
      tokens = tokens + it.overdue(x, now)             -- return first what is overdue
      for n = #x - 1, 4, -2 do
        if x[n] * 1000 <= now then
          x[2] = math.max(x[2], x[n])
          table.remove(x, n)
          table.remove(x, n)
        end
      end
    end
    change(x, due, slots)
    return tokens - slots, due
  end

  function it.give_back(tokens, x, slots, due, life)   -- what is free then; nothing if they were returned already
    if life ~= x[3] or x[2] >= due or lent_until(x, due) < slots then return end
    change(x, due, -slots)
    return tokens + slots
  end

  function it.renew(tokens, x, ttl, slots, due, life, now)   -- when they are due then; nothing likewise
    if not it.give_back(tokens, x, slots, due, life) then return end
    local later = math.max(it.due_time(x, ttl, now), due)
    change(x, later, slots)
    return later
  end

  function it.refilled(x)                              -- every slot is free; what is given back later is none of them
    for n = 4, #x, 2 do x[2] = math.max(x[2], x[n]) end
    return { x[1], x[2], x[3] }
  end

  local function go_back(x, ttl, now)                  -- no slot is lent for longer than one that is lent now
    x[2] = math.min(x[2], floor(now / 1000))
    local latest, late = it.due_time(x, ttl, now), 0
    for n = #x - 1, 4, -2 do
      if x[n] > latest then
        late = late + x[n + 1]
        table.remove(x, n)
        table.remove(x, n)
      end
    end
    change(x, latest, late)
  end

  -- Let one calendar stand in its period of now. Quietly: if that was not told, it stays in the one it is in.
  function it.begin_period(b, t, i, j, now, set_back, quiet)
    local kind, x = it.parsed(t[j + 10]), b[i + 6]
    local number = it.period(kind.boundaries, now, quiet)
    if not number then return end
    if number > x[2] then
      local tokens, m = without_extra(b[i + 1], b[i + 2], x[3] or 0)
      b[i + 1], b[i + 2] = it.grown(tokens, m, t[j + 5], t[j + 3], number - x[2], kind.fresh)
      x[2], x[3] = number, nil
    elseif set_back then
      x[2] = number
    end
  end

  function it.advance(b, t, now, set_back)
    local j = 3
    for i = 5, #b - 6, 6 do
      local kind = t[j + 10]
      if kind ~= '' and t[j + 5] > 0 then
        kind = it.parsed(kind)
        if kind.boundaries then
          it.begin_period(b, t, i, j, now, set_back, (i - 5) / 6 >= t[2])
        elseif kind.held and set_back then
          go_back(b[i + 6], t[j + 4], now)
        end
      end
      j = j + 10
    end
  end

  -- Tokens, millitokens and x of a limit under new terms. Old: those that it had, {tokens, m, top, step, kind, x}.
  function it.rebased(kind, top, step, sn, old, now, life)
    local new = it.parsed(kind)
    if new.held then
      if not old then return top, 0, { sn, math.max(floor(now / 1000), 0), life } end
      old.x[1] = sn
      return old.tokens + top - old.top, 0, old.x
    end
    local tokens, m, x = top, 0, sn > 0 and { sn } or ''
    if old then
      local kept, km = without_extra(old.tokens, old.m, it.extra(old.kind, old.x))
      if kept < top then tokens, m = kept, km end
    end
    if new.boundaries then
      local number = it.period(new.boundaries, now) or 0
      if old and it.parsed(old.kind).boundaries == new.boundaries then
        local more = step - old.step                   -- what was spent stays spent, and what is extra is so for its period
        local ex = old.x[3]
        tokens, m = top + (ex or 0), 0
        if old.tokens < tokens - more then tokens, m = old.tokens + more, old.m end
        x = { sn, math.max(number, old.x[2]), ex }
      else
        x = { sn, number }
      end
    elseif new.watches then
      x = { sn }
    end
    return tokens, m, x
  end

  -- Milliseconds until one limit of a bucket has what is needed, if nothing is taken or given back in between.
  function it.wait(b, t, i, j, needed, now)
    local kind = it.parsed(t[j + 10])
    if kind.held then
      local x, free, last, counts = b[i + 6], b[i + 1], now, {}
      for n = 4, #x, 2 do counts[#counts + 1] = { x[n], x[n + 1] } end
      table.sort(counts, function(one, other) return one[1] < other[1] end)
      for _, count in ipairs(counts) do
        free, last = free + count[2], math.max(count[1] * 1000, last)
        if free >= needed then break end
      end
      return last - now
    elseif kind.boundaries then
      local tokens = without_extra(b[i + 1], 0, b[i + 6][3] or 0)
      local count = periods_until(needed, tokens, t[j + 3], t[j + 5], kind.fresh)
      return (start(kind.boundaries, b[i + 6][2] + count) or now) - now
    end
    local rate = t[j + 6] * 1000 + t[j + 7] + t[j + 8] / t[j + 9]
    return math.ceil(((needed - b[i + 1]) * 1000 - b[i + 2]) / rate - 1e-6)
  end

  -- A bound for when it is full: the time zones of two hosts may differ by two days, and periods in length.
  function it.full_in(b, t, i, j, now)
    local kind, x = it.parsed(t[j + 10]), b[i + 6]
    if kind.held then
      local last = now
      for n = 4, #x, 2 do last = math.max(last, x[n] * 1000) end
      return last - now
    end
    local tokens = without_extra(b[i + 1], 0, x[3] or 0)
    local count = periods_until(t[j + 5], tokens, t[j + 3], t[j + 5], kind.fresh)
    if x[3] then count = math.max(count, 1) end
    if count == 0 then return 0 end
    local _, ends, length = it.period(kind.boundaries, now, true)
    if not ends then return 1e13 end
    return ends - now + (count - 1) * length * 1.25 + 172800000
  end

  -- How a draw meets the limits of one bucket: {wait, place} of the one that lacks for longest, the places of those that only
  -- watch and lack, whether slots are lent, whether a counter would pass its bound.
  function it.judged(b, t, wanted, reserved, now)
    local met, j = { wait = -1, refused = {} }, 3
    for i = 5, 6 * t[2] - 1, 6 do
      local kind, amount = it.parsed(t[j + 10]), wanted[t[j + 1]]
      local needed, free = amount or 0, b[i + 1]
      if amount and b[i + 3] + amount > 9e15 then met.overflow = true end
      if reserved and needed > 0 and not kind.watches then needed = needed + (reserved[t[j + 1]] or 0) end
      if kind.held then
        free = free + it.overdue(b[i + 6], now)
        if amount and amount > 0 then met.lends = true end
      end
      if free < needed and (needed > 0 or not kind.held) then
        if kind.watches then
          met.refused[i], met.refuses = true, true
        else
          local wait = (amount or 0) > t[j + 5] and math.huge or it.wait(b, t, i, j, needed, now)
          if wait > met.wait then met.wait, met.place = wait, i + 1 end
        end
      end
      j = j + 10
    end
    return met
  end

  -- Take from a bucket. A limit that would have refused is not taken from, and counts that. When the slots are due, by place.
  function it.take(b, t, wanted, refused, after, counted, now)
    local lent, j = {}, 3
    for i = 5, 6 * t[2] - 1, 6 do
      local name = t[j + 1]
      local amount = wanted[name]
      if refused[i] then
        b[i + 6][1] = b[i + 6][1] + 1
      elseif amount then
        if amount > 0 and it.parsed(t[j + 10]).held then
          b[i + 1], lent[i] = it.lend(b[i + 1], b[i + 6], t[j + 4], amount, now)
        else
          b[i + 1] = b[i + 1] - amount
        end
        b[i + 3] = b[i + 3] + amount
        if after and counted[name] then b[i + 4] = b[i + 4] + amount end
        counted[name] = true
      end
      j = j + 10
    end
    return lent
  end

  -- The record of a lease, with what is known only now: the slots it holds, and the limits that would have refused.
  function it.recorded(text, ids, ons, bs, ts, lent, refused, wanted)
    local holds, refusing, d = {}, {}, function(x) return string.format('%.0f', x) end
    for n = 1, #ids do
      local t, names = ts[n], {}
      for i, due in pairs(lent[n] or {}) do
        local j = 3 + (i - 5) / 6 * 10
        local place = cjson.encode(ids[n]) .. ',' .. cjson.encode(ons[n]) .. ',"' .. t[j + 1] .. '",'
        holds[#holds + 1] = '[' .. place .. d(wanted[t[j + 1]]) .. ',' .. d(due) .. ',' .. d(t[j + 4]) .. ',' .. d(bs[n][i + 6][3]) .. ']'
      end
      for i in pairs(refused[n] or {}) do names[#names + 1] = '"' .. t[3 + (i - 5) / 6 * 10 + 1] .. '"' end
      refusing[n] = '[' .. table.concat(names, ',') .. ']'
    end
    return string.sub(text, 1, -2) .. ',"h":[' .. table.concat(holds, ',') .. '],"refused":[' .. table.concat(refusing, ',') .. ']}'
  end

  return it
end
