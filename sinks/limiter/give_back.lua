-- Gives back units that were charged at ARGV[1] (milliseconds), where a request was refused by
-- counters on another node. Of each key: algorithm, capacity, window_ms, slots, units.
for i, key in ipairs(KEYS) do
  local at = 1 + (i - 1) * 5
  local window, units = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 5])
  if redis.call('EXISTS', key) == 1 then
    if ARGV[at + 1] == 'B' then
      local full = tonumber(ARGV[at + 2]) * window
      local level = tonumber(redis.call('HGET', key, 'level')) + units * window
      redis.call('HSET', key, 'level', math.min(full, level))
    else
      local size = window / tonumber(ARGV[at + 4])
      local slot = string.format('%.0f', (ARGV[1] - ARGV[1] % size) / size)
      local left = tonumber(redis.call('HGET', key, slot) or 0) - units
      if left > 0 then redis.call('HSET', key, slot, left) else redis.call('HDEL', key, slot) end
    end
  end
end
return #KEYS
