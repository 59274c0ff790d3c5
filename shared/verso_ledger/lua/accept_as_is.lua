-- Lets a read-only ledger take writes as it is, in a new epoch that follows the one that was lost. ARGV: a
-- name for it; how far beyond the lost numbers the next ones start. Returns 1 if it was read-only.
local v = redis.call('HMGET', K.halted, 'epoch', 'seq')
if not v[1] then return 0 end
local seq = math.max(tonumber(redis.call('GET', K.seq)) or 0, tonumber(v[2]) + tonumber(ARGV[2]))
redis.call('SET', K.seq, string.format('%.0f', seq))
redis.call('HSET', K.epoch, 'id', ARGV[1], 'before', v[1], 'since', now)
redis.call('DEL', K.halted)
return 1
