-- Replaces a collection's settings if they are still what the caller read. ARGV: name, old, new.
local stored = redis.call('HGET', K.collections, ARGV[1])
if stored == ARGV[3] then return 1 end
if stored ~= ARGV[2] then return 0 end
if shut('o:' .. ARGV[1], true) then return 'busy' end
redis.call('HSET', K.collections, ARGV[1], ARGV[3])
return 1
