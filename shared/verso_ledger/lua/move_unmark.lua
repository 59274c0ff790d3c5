-- Strikes units off those that have changed, where they have not changed since. ARGV: uid, then unit and the
-- mark it had, in turn. Returns how many are left.
local name = K.marks .. born(ARGV[1])
for i = 2, #ARGV, 2 do
  if redis.call('ZSCORE', name, ARGV[i]) == ARGV[i + 1] then redis.call('ZREM', name, ARGV[i]) end
end
return redis.call('ZCARD', name)
