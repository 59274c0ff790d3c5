-- Notes what is done with a collection of partitions, if it stands as the caller saw. ARGV: key of the notes, which other
-- steps do not need, collection, state seen, new state. Returns 1 if this call noted it.
if read_only() or redis.call('HGET', ARGV[1], ARGV[2]) ~= ARGV[3] then return 0 end
redis.call('HSET', ARGV[1], ARGV[2], ARGV[4])
return 1
