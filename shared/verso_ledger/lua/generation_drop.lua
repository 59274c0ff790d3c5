-- Deletes fitted tables that no record names, and frees their artifact slot, if the collection is still
-- what the caller read. ARGV: own name, its JSON, the new JSON, generation, its slot. Returns 1 if they
-- are gone.
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
local stored, uid = redis.call('HGET', K.collections, ARGV[1]), redis.call('HGET', K.uids, ARGV[1])
if stored ~= ARGV[2] or not uid then return 0 end
local counts = redis.call('HMGET', K.counts .. uid, 'full', 'slot:' .. ARGV[5])
if not counts[1] or tonumber(counts[2] or 0) > 0 then return 0 end
redis.call('HSET', K.collections, ARGV[1], ARGV[3])
redis.call('HDEL', K.generations .. uid, ARGV[4])
redis.call('UNLINK', K.tables .. ARGV[4])
return 1
