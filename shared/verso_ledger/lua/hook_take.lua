-- Takes messages that are due, for a while. ARGV: n, lease in ms.
local rows = {}
for _, token in ipairs(redis.call('ZRANGEBYSCORE', K.hooks, '-inf', now, 'LIMIT', 0, ARGV[1])) do
  local v = redis.call('HMGET', K.hookitem .. token, 'tenant', 'hook', 'job', 'st', 'at', 'kind', 'items',
    'ok', 'err', 'made', 'code', 'detail', 'att')
  local webhook = v[1] and redis.call('HGET', K.webhooks .. v[1], v[2])
  if webhook then
    redis.call('ZADD', K.hooks, now + tonumber(ARGV[2]), token)
    rows[#rows + 1] = { token, webhook, unpack(v, 3, 13) }
  else -- the webhook has been removed
    redis.call('ZREM', K.hooks, token)
    redis.call('UNLINK', K.hookitem .. token)
  end
end
return rows
