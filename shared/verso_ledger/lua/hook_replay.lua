-- Grants messages that were given up new attempts. ARGV: tenant, webhook. Returns their number.
local count = 0
for _, token in ipairs(redis.call('ZRANGE', K.hookdead, 0, -1)) do
  local v = redis.call('HMGET', K.hookitem .. token, 'tenant', 'hook')
  if v[1] == ARGV[1] and v[2] == ARGV[2] then
    redis.call('ZREM', K.hookdead, token)
    redis.call('PERSIST', K.hookitem .. token)
    redis.call('HSET', K.hookitem .. token, 'att', 0)
    redis.call('ZADD', K.hooks, now, token)
    count = count + 1
  end
end
return count
