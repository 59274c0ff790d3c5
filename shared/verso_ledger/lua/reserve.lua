-- Reserves numbers for lines of a stream, which is made if it is new. ARGV: collection as users know it, labels as
-- JSON with sorted keys, lines, most streams. Returns the collection's uid, the stream and the first number; or why not.
if read_only() then return 'read_only' end
local own = redis.call('HGET', K.aliases, ARGV[1]) or ARGV[1]
local uid = redis.call('HGET', K.uids, own)
if not uid then return 'unknown' end
local streams, found = K.streams .. uid, nil
found = redis.call('HGET', streams, ARGV[2])
local stream, first = nil, 0
if found then
  local number, following = string.match(found, '^(%d+) (%d+)$')
  stream, first = tonumber(number), tonumber(following)
else
  stream = redis.call('HLEN', streams)
  if stream >= tonumber(ARGV[4]) then return 'crowded' end
end
redis.call('HSET', streams, ARGV[2], string.format('%.0f %.0f', stream, first + tonumber(ARGV[3])))
return { uid, stream, string.format('%.0f', first) }
