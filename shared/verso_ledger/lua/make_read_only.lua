-- Stops all writes: this ledger is older than what it has acknowledged. ARGV: epoch and sequence number
-- that it had reached once. Only the first call counts.
if redis.call('EXISTS', K.halted) == 0 then
  redis.call('HSET', K.halted, 'epoch', ARGV[1], 'seq', ARGV[2], 'since', now)
end
return 1
