-- An attempt failed. ARGV: token, attempts before it, wait in ms (-1: give up), reason. Given up, a
-- message stays for a while and can be replayed. A report that was made already changes nothing.
local item = K.hookitem .. ARGV[1]
if redis.call('HGET', item, 'att') ~= ARGV[2] or not redis.call('ZSCORE', K.hooks, ARGV[1]) then return 0 end
redis.call('HINCRBY', item, 'att', 1)
redis.call('HSET', item, 'why', ARGV[4])
redis.call('HINCRBY', K.totals, 'hooks:failed', 1)
if tonumber(ARGV[3]) >= 0 then
  redis.call('ZADD', K.hooks, now + tonumber(ARGV[3]), ARGV[1])
else
  redis.call('ZREM', K.hooks, ARGV[1])
  redis.call('ZADD', K.hookdead, now, ARGV[1])
  redis.call('EXPIRE', item, P.dead_keep_s)
  redis.call('HINCRBY', K.totals, 'hooks:dead', 1)
end
return 1
