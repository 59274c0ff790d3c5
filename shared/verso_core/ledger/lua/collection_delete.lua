-- Makes a collection and all its documents invisible at once; drop.lua sweeps their keys.
-- ARGV: name, uid that the caller means, buckets. Refused while a backup copies its points.
if redis.call('EXISTS', K.frozen) == 1 then return 'frozen' end
if halted() then return 'halted' end
if redis.call('HGET', K.uids, ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', K.uids, ARGV[1])
redis.call('HDEL', K.collections, ARGV[1])
redis.call('UNLINK', K.tombs .. ARGV[2])
redis.call('RPUSH', K.dropped, ARGV[2] .. ' ' .. ARGV[3] .. ' 0')
redis.call('SREM', K.hidden, ARGV[1])
local aliases = redis.call('HGETALL', K.aliases)
for i = 1, #aliases, 2 do
  if aliases[i + 1] == ARGV[1] then redis.call('HDEL', K.aliases, aliases[i]) end
end
return 1
