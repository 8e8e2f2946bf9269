-- Decides one request by all its rules, and charges them all or none.
--
-- ARGV[1]  now in milliseconds, or "" for the server's clock (always, but in tests)
-- then of each key: algorithm ("B" token bucket, "W" sliding window), limit, capacity, window_ms,
-- slots, units asked, units wanted (>= asked; what is to be had above it is a lease), shadow
-- Returns now, 1 when admitted, then of each key: own verdict, units charged, units left,
-- milliseconds until a retry can pass (-1: never), milliseconds until all units are back.
--
-- Every number is an integer below 2^53, so a double holds it exactly.

local now, spare = tonumber(ARGV[1]), 1
if now then
  spare = 600000  -- the server expires keys by its own clock, not by the test's
else
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function floored(x, y) return (x - x % y) / y end
local function ceiled(x, y) return floored(x + y - 1, y) end

-- Level and units are kept times window_ms: so a millisecond brings `limit`, an integer.
local function bucket(key, a)
  local full = a.capacity * a.window
  local level, at = full, now
  local stored = redis.call('HMGET', key, 'level', 'at')
  if stored[1] then
    local since = tonumber(stored[2])
    at = math.max(now, since)  -- a clock set back brings nothing, and takes nothing
    level = math.min(full, tonumber(stored[1]) + (at - since) * a.limit)
  end
  local cost = a.units * a.window
  local retry = 0
  if cost > full then retry = -1
  elseif cost > level then retry = ceiled(cost - level, a.limit) end
  local taken = retry == 0 and math.min(a.want, floored(level, a.window)) or 0
  local function result(charged)
    local left = level - charged * a.window
    return floored(left, a.window), ceiled(full - left, a.limit)
  end
  local function charge()
    local left = level - taken * a.window
    redis.call('HSET', key, 'level', left, 'at', at)
    redis.call('PEXPIRE', key, ceiled(full - left, a.limit) + (at - now) + spare)
  end
  return retry, taken, result, charge
end

-- Units by slot. A slot counts until all of it has left the window, so no window, wherever it
-- begins, holds more than the limit.
local function window(key, a)
  local size = a.window / a.slots
  local current = floored(now, size)
  local oldest, used, newest = current - a.slots, 0, nil
  local live, gone = {}, {}
  local stored = redis.call('HGETALL', key)
  for i = 1, #stored, 2 do
    local slot, units = tonumber(stored[i]), tonumber(stored[i + 1])
    if slot < oldest then
      gone[#gone + 1] = stored[i]
    else
      used = used + units
      live[#live + 1] = {slot, units}
      newest = math.max(newest or slot, slot)
    end
  end
  local function leaves(slot) return (slot + a.slots + 1) * size - now end
  local retry, free = 0, a.capacity - used
  if a.units > a.capacity then retry = -1
  elseif a.units > free then
    table.sort(live, function(x, y) return x[1] < y[1] end)
    for i = 1, #live do
      free = free + live[i][2]
      if a.units <= free then retry = leaves(live[i][1]) break end
    end
  end
  local taken = retry == 0 and math.min(a.want, free) or 0
  local function result(charged)
    local last = newest
    if charged > 0 then last = math.max(last or current, current) end
    return math.max(0, a.capacity - used - charged), last and leaves(last) or 0
  end
  local function charge()
    if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
    if taken > 0 then redis.call('HINCRBY', key, string.format('%.0f', current), taken) end
    redis.call('PEXPIRE', key, leaves(math.max(newest or current, current)) + spare)
  end
  return retry, taken, result, charge
end

local FIELDS = 8
local asked, admitted = {}, 1
for i, key in ipairs(KEYS) do
  local at = 1 + (i - 1) * FIELDS
  local a = {
    limit = tonumber(ARGV[at + 2]), capacity = tonumber(ARGV[at + 3]),
    window = tonumber(ARGV[at + 4]), slots = tonumber(ARGV[at + 5]),
    units = tonumber(ARGV[at + 6]), want = tonumber(ARGV[at + 7]),
  }
  local retry, taken, result, charge = (ARGV[at + 1] == 'B' and bucket or window)(key, a)
  if retry ~= 0 and ARGV[at + 8] == '0' then admitted = 0 end
  asked[i] = {retry, taken, result, charge}
end

local answer = {now, admitted}
for _, one in ipairs(asked) do
  local retry, taken, result, charge = unpack(one)
  if admitted == 1 and retry == 0 then charge() else taken = 0 end
  local left, reset = result(taken)
  for _, number in ipairs({retry == 0 and 1 or 0, taken, left, retry, reset}) do
    answer[#answer + 1] = number
  end
end
return answer
