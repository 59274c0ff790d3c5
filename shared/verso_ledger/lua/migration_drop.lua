-- Removes one side of a migration and all its documents. ARGV: its own name, buckets. Refused while a
-- backup copies its points.
if redis.call('EXISTS', K.frozen) == 1 then return 'frozen' end
if read_only() then return 'read_only' end
local uid = redis.call('HGET', K.uids, ARGV[1])
if uid and redis.call('SISMEMBER', K.sealed, uid) == 1 then
  redis.call('SADD', K.sealed, 'gone:' .. ARGV[1])
end
raze(ARGV[1], ARGV[2])
return 'done'
