-- Returns the ledger's epoch and epoch, the epoch it was copied from, newest sequence number. ARGV: a name
-- for an epoch, and 1 to start it in any case; otherwise only a ledger that has none takes it.
local epoch = redis.call('HGET', K.epoch, 'id')
if not epoch or (ARGV[2] == '1' and epoch ~= ARGV[1]) then
  redis.call('HSET', K.epoch, 'id', ARGV[1], 'before', epoch or '', 'since', now)
end
local v = redis.call('HMGET', K.epoch, 'id', 'before')
return { v[1], v[2], tonumber(redis.call('GET', K.seq)) or 0 }
