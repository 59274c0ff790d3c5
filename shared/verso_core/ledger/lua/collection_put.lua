-- Creates a collection, unless one has this name. ARGV: name, JSON. Gives what is stored.
local stored = redis.call('HGET', K.collections, ARGV[1])
if stored then return stored end
if halted() then return 'halted' end
redis.call('HSET', K.uids, ARGV[1], redis.call('INCR', K.seq))
redis.call('HSET', K.collections, ARGV[1], ARGV[2])
return ARGV[2]
