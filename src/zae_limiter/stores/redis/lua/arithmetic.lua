-- Exact token buckets in a language that has only doubles. It equals bucket.py, millitoken for millitoken.
--
-- A level is whole tokens T (negative in debt) and millitokens m, 0 <= m < 1000; a ceiling B is whole tokens. A rate of
-- ra/rp millitokens per millisecond, in lowest terms, is kept as  ra = (1000 qT + qm) rp + s,  0 <= qm < 1000, 0 <= s < rp:
--
--   accrued(now) - accrued(rf) = dt (1000 qT + qm) + low(now) - low(rf),     low(t) = floor(t s / rp)
--
-- Every product below stays under 2^53 (0 <= t < 2^43, s < rp < 2^35, B <= 10^15, T >= -8 10^15) or is only compared with
-- something smaller, and floor(x / y) of whole numbers under 2^53 is exact.
local floor = math.floor

local function low(t, s, rp)
  local x = t * s
  if x < 9007199254740992 then return floor(x / rp) end
  local d = floor(t / 268435456)                       -- t in digits of 14 bits: long division, the largest first
  local rest = t - d * 268435456
  local e = floor(rest / 16384)
  x = d * s
  local k = floor(x / rp)
  x = (x - k * rp) * 16384 + e * s
  local l = floor(x / rp)
  x = (x - l * rp) * 16384 + (rest - e * 16384) * s
  return (k * 16384 + l) * 16384 + floor(x / rp)
end

-- A bucket b is {packed terms, rf, events, events that an earlier leg counted too, hour, then T, m, C, K, D, x of each limit}:
-- C counts what was ever taken, K what of it an earlier leg of the same acquires counted too, D denials. Its terms t are
-- {version, n, care, then name, capacity, amount, period, B, qT, qm, s, rp, kind of each limit}. The first n limits are in
-- force, the others retired; one with B = 0 has ended, and only its counters are left. Kind and x are '' for a limit that
-- refills evenly and refuses; kinds.lua has the others. Care is 0 if all limits are such, 1 if one takes long to fill, and
-- 2 if one is of another kind.
local kinds, make_kinds
local told_periods = ''                                -- the periods of calendars that the client told
local function advance(b, t, now)            -- make now the baseline, if it is later; no level changes
  local rf = b[2]
  if now > rf then
    local dt, j = now - rf, 3
    for i = 5, #b - 6, 6 do
      local top, tokens, qt, qm, s = t[j + 5], b[i + 1], t[j + 6], t[j + 7], t[j + 8]
      if qt > 0 or qm > 0 or s > 0 then                -- else it is of another kind, or has ended
        local a = dt * qt
        if a >= top - tokens then
          tokens = top
        else
          local am = b[i + 2] + dt * qm
          if s > 0 then
            local rp = t[j + 9]
            am = am + low(now, s, rp) - low(rf, s, rp)
          end
          local k = floor(am / 1000)
          tokens = tokens + a + k
          b[i + 2] = am - k * 1000
        end
        if tokens >= top then tokens = top; b[i + 2] = 0 end
        b[i + 1] = tokens
      end
      j = j + 10
    end
    b[2] = now
  elseif rf > now + 60000 then
    b[2] = now                                         -- the clock was ahead, and was set back: go on from now
  end
  if t[3] == 2 then
    kinds = kinds or make_kinds()
    kinds.advance(b, t, now, rf > now + 60000)
  end
end

-- The level after so many whole tokens are taken (or, negative, given back): into debt if need be, up to the ceiling.
local function booked(tokens, m, amount, top)
  tokens = tokens - amount
  if tokens >= top then return top, 0 end
  return tokens, m
end
