-- Makes a collection and all its documents invisible at once; drop.lua sweeps their keys.
-- ARGV: name, uid that the caller means, buckets.
if redis.call('HGET', K.uids, ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', K.uids, ARGV[1])
redis.call('HDEL', K.collections, ARGV[1])
redis.call('UNLINK', K.tombs .. ARGV[2])
redis.call('RPUSH', K.dropped, ARGV[2] .. ' ' .. ARGV[3] .. ' 0')
return 1
