-- Takes entries whose points may be removed; those not reported done come again after a while.
-- ARGV: n, lease in ms. Returns rows of token, collection, document, entry.
if redis.call('EXISTS', K.frozen) == 1 then return {} end -- a backup copies what they may name
if read_only() then return {} end -- a newer ledger may name them
local rows = {}
local arriving = redis.call('EXISTS', K.arriving) == 1 -- reads on the ledger that a collection came from may see them yet
for _, token in ipairs(redis.call('ZRANGEBYSCORE', K.gc, '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))) do
  local v = redis.call('HMGET', K.gcitem .. token, 'c', 'd', 'e')
  if v[1] and arriving and redis.call('HEXISTS', K.arriving, v[1]) == 1 then
    redis.call('ZADD', K.gc, now + P.gc_delay_ms, token)
  elseif v[1] then
    redis.call('ZADD', K.gc, now + tonumber(ARGV[2]), token)
    rows[#rows + 1] = { token, v[1], v[2], v[3] }
  else
    redis.call('ZREM', K.gc, token)
  end
end
return rows
