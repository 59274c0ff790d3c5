-- Strikes units off those that have changed, or members off those that are new, where they have not changed since. ARGV:
-- marks or fresh, uid, then unit and the mark it had, in turn. Returns how many are left.
local name = K[ARGV[1]] .. born(ARGV[2])
for i = 3, #ARGV, 2 do
  if redis.call('ZSCORE', name, ARGV[i]) == ARGV[i + 1] then redis.call('ZREM', name, ARGV[i]) end
end
return redis.call('ZCARD', name)
