-- Creates a collection, unless one has this name. ARGV: own name, JSON, name that users know, token of
-- the room made for its vectors ('' none was made). Returns what is stored.
local own, name = ARGV[1], ARGV[3]
local stored = redis.call('HGET', K.collections, redis.call('HGET', K.aliases, name) or name)
if stored then return stored end
if read_only() then return 'read_only' end
-- One of this name has moved to another ledger: what was asked before that does not make a second one.
if shut('n:' .. name, false) then return 'moved' end
if redis.call('HEXISTS', K.collections, own) == 1 or not take_room(ARGV[4]) then return 'moved' end
local uid = redis.call('INCR', K.seq)
redis.call('HSET', K.uids, own, uid)
redis.call('HSET', K.counts .. uid, 'full', now)
redis.call('HSET', K.collections, own, ARGV[2])
redis.call('HDEL', K.shut, 'n:' .. name, 'o:' .. own) -- of a move that was cancelled
if own ~= name then
  redis.call('HSET', K.aliases, name, own)
  redis.call('SADD', K.hidden, own)
end
return ARGV[2]
