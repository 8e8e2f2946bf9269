-- Puts counters back that are not there: of each key its time to live in milliseconds and a JSON
-- object of fields. What has been counted since the loss stays. Returns how many were put back.
local put = 0
for i, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 0 then
    for field, value in pairs(cjson.decode(ARGV[2 * i])) do redis.call('HSET', key, field, value) end
    redis.call('PEXPIRE', key, ARGV[2 * i - 1])
    put = put + 1
  end
end
return put
