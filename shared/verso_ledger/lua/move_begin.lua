-- Starts a move to another ledger. ARGV: collection as users know it, own name, uid, the state that the caller saw
-- ('' none), new state. From now on every change is noted (see touch). Returns done, or why not.
if read_only() then return 'read_only' end
if (redis.call('HGET', K.moves, ARGV[1]) or '') ~= ARGV[4] then return 'changed' end
if redis.call('HGET', K.uids, ARGV[2]) ~= ARGV[3] then return 'gone' end
if migrating(ARGV[1]) then return 'migrating' end
redis.call('SADD', K.tracked, born(ARGV[3]))
redis.call('HSET', K.moves, ARGV[1], ARGV[5])
return 'done'
