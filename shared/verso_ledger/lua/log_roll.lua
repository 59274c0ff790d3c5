-- Lets a partition by time take no more lines, for good. ARGV: its name as users know it, uid of its lines. Returns 1, or
-- 0 if it moves to another ledger, or the name is of another collection by now.
if read_only() or shut('n:' .. ARGV[1], true) then return 0 end
if lines_uid(redis.call('HGET', K.aliases, ARGV[1]) or ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', K.log .. ARGV[2], 'rolled', now)
return 1
