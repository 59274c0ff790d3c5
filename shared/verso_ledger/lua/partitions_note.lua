-- Notes what is done with a collection of partitions, if it stands as the caller saw. ARGV: key of the notes, which other
-- steps do not need, collection, state seen, new state ('' there is none any more). Returns 1 if this
-- call did it.
if read_only() then return 'read_only' end
if redis.call('HGET', ARGV[1], ARGV[2]) ~= ARGV[3] then return 0 end
if ARGV[4] == '' then
  redis.call('HDEL', ARGV[1], ARGV[2])
else
  redis.call('HSET', ARGV[1], ARGV[2], ARGV[4])
end
return 1
