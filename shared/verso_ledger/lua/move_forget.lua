-- Removes a copy of a collection that has not become one of this ledger; drop.lua sweeps its keys. ARGV: own name,
-- buckets.
local uid = string.match(redis.call('HGET', K.receiving, ARGV[1]) or '', '^(%d+) ')
if not uid then return 'done' end
redis.call('HDEL', K.receiving, ARGV[1])
for _, generation in ipairs(redis.call('HKEYS', K.generations .. uid)) do
  redis.call('UNLINK', K.tables .. generation)
end
redis.call('UNLINK', K.tombs .. uid, K.counts .. uid, K.generations .. uid)
redis.call('RPUSH', K.dropped, uid .. ' ' .. ARGV[2] .. ' 0')
return 'done'
