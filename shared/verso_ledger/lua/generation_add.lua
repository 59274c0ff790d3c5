-- Stores fitted tables and names them in their collection, if that is still what the caller read.
-- ARGV: own name, its JSON, the new JSON, generation, tables. Returns 1 if they are stored.
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
local stored, uid = redis.call('HGET', K.collections, ARGV[1]), redis.call('HGET', K.uids, ARGV[1])
if stored ~= ARGV[2] and stored ~= ARGV[3] or not uid then return 0 end
redis.call('HSET', K.collections, ARGV[1], ARGV[3])
redis.call('HSETNX', K.generations .. uid, ARGV[4], 0)
redis.call('SET', K.tables .. ARGV[4], ARGV[5])
return 1
