-- How many members of a board are ahead of a place, and who stands around it. Read only.
--
-- KEYS  1 places (zset: reached_ms and member -> -score)
-- ARGV  1 -score   2 place   3 neighbours to return on either side
-- Returns: number ahead, the neighbours before, then those from the place on, both with scores.

local key, score, place, n = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])

-- Lua's own "<" collates by locale; a zset compares bytes.
local function before(a, b)
  local length = math.min(#a, #b)
  for i = 1, length do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
local high = redis.call('ZCOUNT', key, '-inf', score)
while low < high do
  local middle = math.floor((low + high) / 2)
  if before(redis.call('ZRANGE', key, middle, middle)[1], place) then
    low = middle + 1
  else
    high = middle
  end
end
local prior = {}
if low > 0 and n > 0 then
  prior = redis.call('ZRANGE', key, math.max(0, low - n), low - 1, 'WITHSCORES')
end
return { low, prior, redis.call('ZRANGE', key, low, low + n, 'WITHSCORES') }
