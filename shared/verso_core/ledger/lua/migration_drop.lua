-- Removes one side of a migration and all its documents. ARGV: its own name, buckets. Refused while a
-- backup copies its points.
if redis.call('EXISTS', K.frozen) == 1 then return 'frozen' end
if halted() then return 'halted' end
local uid = redis.call('HGET', K.uids, ARGV[1])
if uid then
  redis.call('HDEL', K.uids, ARGV[1])
  redis.call('HDEL', K.collections, ARGV[1])
  redis.call('UNLINK', K.tombs .. uid)
  if redis.call('SREM', K.sealed, uid) == 1 then
    redis.call('SADD', K.sealed, 'gone:' .. ARGV[1])
  end
  redis.call('RPUSH', K.dropped, uid .. ' ' .. ARGV[2] .. ' 0')
end
redis.call('SREM', K.hidden, ARGV[1])
local aliases = redis.call('HGETALL', K.aliases)
for i = 1, #aliases, 2 do
  if aliases[i + 1] == ARGV[1] then redis.call('HDEL', K.aliases, aliases[i]) end
end
return 'done'
