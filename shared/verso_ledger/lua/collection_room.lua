-- Notes that a caller is about to make room for the vectors of a collection: they are garbage after a
-- while, unless the collection comes before. ARGV: own name, name that users will know it by ('' none),
-- what the caller read under that name in razed. Returns a token for the call that makes the collection.
if read_only() then return 'read_only' end
local own, name = ARGV[1], ARGV[2]
if name ~= '' then
  local razed = redis.call('GET', K.razed .. name) or ''
  if razed ~= ARGV[3] then return 'moved' end
  -- Another attempt gets another own name: what is left of this one may go at any time.
  local by = string.match(razed, ' (%d+)$') or '0'
  local attempt = 'room' .. redis.call('HINCRBY', K.totals, 'rooms', 1)
  redis.call('SET', K.razed .. name, attempt .. ' ' .. by, 'EX', P.dead_keep_s)
end
local token, till = discard(own, '', ''), now + P.room_ms
redis.call('ZADD', K.gc, till, token)
redis.call('HSET', K.gcitem .. token, 'till', till)
return token
