-- Creates a collection, unless one has this name. ARGV: own name, JSON, name that users know, what the
-- caller read of the last deletion under that name ('' nothing). Gives what is stored.
local own, name = ARGV[1], ARGV[3]
local now_own = redis.call('HGET', K.aliases, name) or name
local stored = redis.call('HGET', K.collections, now_own)
if stored then
  if now_own ~= own then discard(own, '', '') end -- the caller has made room for its vectors
  return stored
end
if halted() then return 'halted' end
if (redis.call('GET', K.razed .. name) or '') ~= ARGV[4] or redis.call('HEXISTS', K.collections, own) == 1 then
  discard(own, '', '')
  return 'moved'
end
redis.call('HSET', K.uids, own, redis.call('INCR', K.seq))
redis.call('HSET', K.collections, own, ARGV[2])
if own ~= name then
  redis.call('HSET', K.aliases, name, own)
  redis.call('SADD', K.hidden, own)
end
return ARGV[2]
