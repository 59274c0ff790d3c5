-- Makes a collection that was copied here one of this ledger. ARGV: own name, collection as users know it, uid, its
-- settings as JSON, its newest migration as JSON ('' none), where it was before as JSON. Points that its entries do not
-- name any more stay until move_release: reads on the ledger that it came from may still see them. Returns done, or
-- stale if the copy is gone.
if read_only() then return 'read_only' end
local own, name, uid = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', K.uids, own) == uid then return 'done' end
if redis.call('HGET', K.arriving, own) == uid then return 'done' end -- deleted since
if string.match(redis.call('GET', K.razed .. name) or '', '^(%S+) ') == uid then return 'done' end
if string.match(redis.call('HGET', K.receiving, own) or '', '^(%d+) ') ~= uid then return 'stale' end
redis.call('HSET', K.uids, own, uid)
redis.call('HSET', K.collections, own, ARGV[4])
if own ~= name then
  redis.call('HSET', K.aliases, name, own)
  redis.call('SADD', K.hidden, own)
else
  redis.call('SREM', K.hidden, own)
end
if ARGV[5] ~= '' then redis.call('HSET', K.migrations, name, ARGV[5]) end
redis.call('HSET', K.came, name, ARGV[6])
redis.call('HSET', K.arriving, own, uid)
redis.call('HDEL', K.receiving, own)
redis.call('HDEL', K.shut, 'n:' .. name, 'o:' .. own)
redis.call('SREM', K.sealed, 'gone:' .. own)
return 'done'
