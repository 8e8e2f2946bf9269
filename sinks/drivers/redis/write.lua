-- One fenced write: refuse, or apply every change and move the position. One slot, one step.
--
-- KEYS  1 positions (hash topic -> position)   2 sealed flag
-- ARGV  1 topic   2 expected position, "" for none   3 new position   4 key prefix
--       5 operations (MessagePack)   6 most rows that expiry may remove in this write
--
-- Every value stays a string from end to end: a Lua number is a double. The exceptions are scores
-- and reached_ms, which the writer keeps below 2^53.

local topic, expected, position, prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('EXISTS', KEYS[2]) == 1 then return 'sealed' end
if (redis.call('HGET', KEYS[1], topic) or '') ~= expected then return 'moved' end

local CHUNK = 4000 -- Lua's unpack fails near 8,000 values
local SCORE_MAX = 9007199254740991
local SHIFT = 4503599627370496 -- 2^52: makes reached_ms positive, so that its digits sort

local function chunked(command, key, values)
  local said = 0
  for first = 1, #values, CHUNK do
    local last = math.min(first + CHUNK - 1, #values)
    said = said + redis.call(command, key, unpack(values, first, last))
  end
  return said
end

local function digits(number)
  if number == 0 then return '0' end -- never "-0"
  return string.format('%.0f', number)
end

local function place(reached, member)
  return string.format('%016.0f', reached + SHIFT) .. member
end

local function index(kind, name, buckets, times)
  local pairs_ = {}
  for i = 1, #buckets do
    pairs_[2 * i - 1], pairs_[2 * i] = times[i], buckets[i]
  end
  chunked('ZADD', prefix .. 'b:' .. name, pairs_)
  redis.call('SADD', prefix .. 'tables', kind .. name)
end

local merges = {
  sum = function(score, reached, old_score, old_reached)
    local sum = math.max(-SCORE_MAX, math.min(SCORE_MAX, old_score + score))
    return sum, math.max(old_reached, reached)
  end,
  best = function(score, reached, old_score, old_reached)
    if score > old_score or (score == old_score and reached < old_reached) then
      return score, reached
    end
    return old_score, old_reached
  end,
  last = function(score, reached, old_score, old_reached)
    if reached > old_reached or (reached == old_reached and score > old_score) then
      return score, reached
    end
    return old_score, old_reached
  end,
}

-- rows: member, score, reached_ms, member, ... (no member twice)
local function rank(name, merge, board, rows)
  local members_key = prefix .. 'm:' .. name .. ':' .. board
  local members, old = {}, {}
  for i = 1, #rows, 3 do members[#members + 1] = rows[i] end
  for first = 1, #members, CHUNK do
    local last = math.min(first + CHUNK - 1, #members)
    for i, value in ipairs(redis.call('HMGET', members_key, unpack(members, first, last))) do
      old[first + i - 1] = value
    end
  end
  local gone, placed, values = {}, {}, {}
  for i, member in ipairs(members) do
    local score, reached = tonumber(rows[3 * i - 1]), tonumber(rows[3 * i])
    if old[i] then
      local s, r = string.match(old[i], '^([^,]+),(.+)$')
      s, r = tonumber(s), tonumber(r)
      score, reached = merges[merge](score, reached, s, r)
      if reached ~= r then gone[#gone + 1] = place(r, member) end
    else
      redis.call('SADD', prefix .. 'i:' .. name .. ':' .. member, board)
    end
    placed[2 * i - 1], placed[2 * i] = digits(-score), place(reached, member)
    values[2 * i - 1], values[2 * i] = member, digits(score) .. ',' .. digits(reached)
  end
  local places_key = prefix .. 'z:' .. name .. ':' .. board
  chunked('ZREM', places_key, gone)
  chunked('ZADD', places_key, placed)
  chunked('HSET', members_key, values)
end

local function unrank(name, member)
  local boards_key = prefix .. 'i:' .. name .. ':' .. member
  for _, board in ipairs(redis.call('SMEMBERS', boards_key)) do
    local members_key = prefix .. 'm:' .. name .. ':' .. board
    local old = redis.call('HGET', members_key, member)
    if old then
      local reached = tonumber(string.match(old, ',(.+)$'))
      redis.call('ZREM', prefix .. 'z:' .. name .. ':' .. board, place(reached, member))
      redis.call('HDEL', members_key, member)
      if redis.call('EXISTS', members_key) == 0 then
        redis.call('ZREM', prefix .. 'b:' .. name, board)
      end
    end
  end
  redis.call('DEL', boards_key)
end

local function expire_buckets(name, buckets)
  for _, bucket in ipairs(buckets) do
    redis.call('UNLINK', prefix .. 't:' .. name .. ':' .. bucket)
    redis.call('ZREM', prefix .. 'b:' .. name, bucket)
  end
end

local function expire_boards(name, boards, budget)
  for _, board in ipairs(boards) do
    if budget <= 0 then return end
    local places_key = prefix .. 'z:' .. name .. ':' .. board
    local places = redis.call('ZRANGE', places_key, 0, math.min(budget, CHUNK) - 1)
    local members = {}
    for i, at in ipairs(places) do
      members[i] = string.sub(at, 17)
      redis.call('SREM', prefix .. 'i:' .. name .. ':' .. members[i], board)
    end
    chunked('ZREM', places_key, places)
    chunked('HDEL', prefix .. 'm:' .. name .. ':' .. board, members)
    if redis.call('EXISTS', places_key) == 0 then redis.call('ZREM', prefix .. 'b:' .. name, board) end
    budget = budget - #places
  end
end

local entries = {} -- how many each feed of this write has, by its key

local function insert(key, rows, most)
  local has = entries[key] + chunked('ZADD', key, rows)
  if has > most then redis.call('ZREMRANGEBYRANK', key, 0, has - most - 1) end
  entries[key] = math.min(has, most)
end

-- A member is the text of its origin, a comma and the text of its id; no text begins another.
local function withdraw(key, origins)
  local gone = {}
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    for _, origin in ipairs(origins) do
      if string.sub(member, 1, #origin) == origin then gone[#gone + 1] = member end
    end
  end
  entries[key] = entries[key] - chunked('ZREM', key, gone)
end

local apply = {
  upsert = function(op)
    local _, name, buckets, times, rows = unpack(op)
    for i, bucket in ipairs(buckets) do
      chunked('HSET', prefix .. 't:' .. name .. ':' .. bucket, rows[i])
    end
    index('t:', name, buckets, times)
  end,
  delete = function(op)
    local _, name, buckets, fields = unpack(op)
    for i, bucket in ipairs(buckets) do
      local key = prefix .. 't:' .. name .. ':' .. bucket
      chunked('HDEL', key, fields[i])
      if redis.call('EXISTS', key) == 0 then redis.call('ZREM', prefix .. 'b:' .. name, bucket) end
    end
  end,
  rank = function(op)
    local _, name, boards, times, rows, merge = unpack(op)
    for i, board in ipairs(boards) do rank(name, merge, board, rows[i]) end
    index('z:', name, boards, times)
  end,
  unrank = function(op)
    for _, member in ipairs(op[3]) do unrank(op[2], member) end
  end,
  insert = function(op)
    local _, name, feeds, _, rows, most = unpack(op)
    local new, times = {}, {}
    for i, feed in ipairs(feeds) do
      local key = prefix .. 'f:' .. name .. ':' .. feed
      if entries[key] == 0 then new[#new + 1], times[#times + 1] = feed, '0' end
      insert(key, rows[i], most)
    end
    index('f:', name, new, times)
  end,
  withdraw = function(op)
    local _, name, feeds, origins = unpack(op)
    for i, feed in ipairs(feeds) do
      local key = prefix .. 'f:' .. name .. ':' .. feed
      withdraw(key, origins[i])
      if entries[key] == 0 then redis.call('ZREM', prefix .. 'b:' .. name, feed) end
    end
  end,
  expire = function(op)
    local _, name, kind, cutoff = unpack(op)
    local old = redis.call('ZRANGEBYSCORE', prefix .. 'b:' .. name, '-inf', '(' .. cutoff,
      'LIMIT', 0, ARGV[6])
    if kind == 't' then expire_buckets(name, old) else expire_boards(name, old, tonumber(ARGV[6])) end
  end,
}

-- A script is not rolled back, so a key of a foreign type has to be found before the first change.
local function typed(key, wanted)
  local found = redis.call('TYPE', key).ok
  if found ~= wanted and found ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. wanted)
  end
end

local operations = cmsgpack.unpack(ARGV[5])
for _, op in ipairs(operations) do
  local wrong = typed(prefix .. 'b:' .. op[2], 'zset') or typed(prefix .. 'tables', 'set')
  if wrong then return wrong end
  if op[1] == 'insert' or op[1] == 'withdraw' then
    for _, feed in ipairs(op[3]) do
      local key = prefix .. 'f:' .. op[2] .. ':' .. feed
      local has = redis.pcall('ZCARD', key)
      if type(has) == 'table' then return typed(key, 'zset') end
      entries[key] = has
    end
  end
  if op[1] == 'upsert' or op[1] == 'delete' or op[1] == 'rank' then
    local kind = op[1] == 'rank' and 'm:' or 't:'
    for _, bucket in ipairs(op[3]) do
      wrong = typed(prefix .. kind .. op[2] .. ':' .. bucket, 'hash')
        or (op[1] == 'rank' and typed(prefix .. 'z:' .. op[2] .. ':' .. bucket, 'zset'))
      if wrong then return wrong end
    end
  end
end
for _, op in ipairs(operations) do apply[op[1]](op) end
redis.call('HSET', KEYS[1], topic, position)
return 'ok'
