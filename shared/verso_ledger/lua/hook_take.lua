-- Takes messages that are due, for a while. ARGV: n, lease in ms, most in flight of a webhook, of a tenant,
-- then pairs of a webhook or tenant and how many it has in flight. Messages beyond those bounds are passed
-- over; where they are many, they are put off for a second so that the next call sees what stands behind them.
local LOOKED_AT, PASSED_OVER = 1000, 100
local n, lease, of_hook, of_tenant = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local busy, rows, passed = {}, {}, 0
for i = 5, #ARGV, 2 do busy[ARGV[i]] = tonumber(ARGV[i + 1]) end

for _, token in ipairs(redis.call('ZRANGEBYSCORE', K.hooks, '-inf', now, 'LIMIT', 0, LOOKED_AT)) do
  if #rows >= n then break end
  local item = K.hookitem .. token
  local v = redis.call('HMGET', item, 'tenant', 'hook')
  local webhook = v[1] and redis.call('HGET', K.webhooks .. v[1], v[2])
  if not webhook then -- the webhook has been removed
    redis.call('ZREM', K.hooks, token)
    redis.call('UNLINK', item)
  elseif (busy[v[2]] or 0) >= of_hook or (busy[v[1]] or 0) >= of_tenant then
    passed = passed + 1
    if passed > PASSED_OVER then redis.call('ZADD', K.hooks, now + 1000, token) end
  else
    busy[v[2]], busy[v[1]] = (busy[v[2]] or 0) + 1, (busy[v[1]] or 0) + 1
    redis.call('ZADD', K.hooks, now + lease, token)
    rows[#rows + 1] = { token, webhook, v[1], unpack(redis.call('HMGET', item, 'job', 'st', 'at', 'kind',
      'items', 'ok', 'err', 'made', 'code', 'detail', 'att')) }
  end
end
return rows
