-- Claims: what callers of other processes wait for. A claim is {id, since when, until when, amounts}; those of a bucket are one
-- key. The namespace has, with its limits, until when there is any: while there is none, no draw looks.
local function make_claims(prefix, now, ticket, marks)
  local it = { queues = {}, ahead = {}, since = ticket and (ticket.since or now) }
  local own = marks and string.match(marks, '#([^-]+)%-') .. '.'   -- what its own process waits for is reserved already

  local function key(at, on) return prefix .. 'q#' .. at .. '#' .. on end

  function it.read(n, at, on)
    local stored = call('GET', key(at, on))
    it.queues[n] = stored and cmsgpack.unpack(stored) or {}
  end

  function it.with_those_ahead(n, at, on, reserved)    -- what is reserved, and what those want that claimed earlier
    it.read(n, at, on)
    local sums = {}
    for _, claim in ipairs(it.queues[n]) do
      local id, begun, till, amounts = unpack(claim)
      local earlier = not ticket or begun < it.since or begun == it.since and id < ticket.id
      if till > now and earlier and string.sub(id, 1, #own) ~= own then
        for name, amount in pairs(amounts) do sums[name] = (sums[name] or 0) + amount end
      end
    end
    if not next(sums) then return reserved end
    it.ahead[n] = sums
    local all = {}
    for name, amount in pairs(reserved or {}) do all[name] = amount end
    for name, amount in pairs(sums) do all[name] = (all[name] or 0) + amount end
    return all
  end

  -- Let the claim of this ticket stand in one bucket, or in none, and drop those that are over. Until when there are claims.
  function it.stand(place, wanted, ids, ons)
    local until_when
    it.place = place
    for n = 1, #ids do
      local kept, mine, changed, last = {}, nil, false, 0
      for _, claim in ipairs(it.queues[n] or {}) do
        if claim[1] == ticket.id then mine = claim end
        if claim[3] > now and (claim[1] ~= ticket.id or n == place) then kept[#kept + 1] = claim else changed = true end
      end
      if n == place then
        if not mine or mine[3] <= now then
          mine = { ticket.id, it.since, 0, {} }
          for name, amount in pairs(wanted) do if amount > 0 then mine[4][name] = amount end end
          kept[#kept + 1] = mine
        end
        mine[3], changed = now + ticket.lasts, true
        until_when = mine[3]
      end
      for _, claim in ipairs(kept) do last = math.max(last, claim[3]) end
      if changed and #kept == 0 then call('DEL', key(ids[n], ons[n]))
      elseif changed then call('SET', key(ids[n], ons[n]), cmsgpack.pack(kept), 'PX', string.format('%.0f', last - now)) end
    end
    return until_when
  end

  function it.told(ids, ons)                           -- what a denial had to leave to others; since when it claims, and where
    local function place(n) return cjson.encode(ids[n]) .. ',' .. cjson.encode(ons[n]) end
    local told = {}
    for n, sums in pairs(it.ahead) do
      local amounts = {}
      for name, amount in pairs(sums) do amounts[#amounts + 1] = '"' .. name .. '":' .. string.format('%.0f', amount) end
      told[#told + 1] = '[' .. place(n) .. ',{' .. table.concat(amounts, ',') .. '}]'
    end
    return '{"since":' .. (ticket and string.format('%.0f', it.since) or 'null') .. ',"at":['
      .. (it.place and place(it.place) or '') .. '],"ahead":[' .. table.concat(told, ',') .. ']}'
  end

  return it
end
