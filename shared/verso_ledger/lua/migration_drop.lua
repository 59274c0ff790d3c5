-- Removes one side of a migration and all its documents, if the migration still stands where the caller saw it: a
-- target may be what users read by now. ARGV: its own name, buckets, collection, the state seen. Refused while a backup
-- copies its points.
if redis.call('HGET', K.migrations, ARGV[3]) ~= ARGV[4] then return 'moved' end
if redis.call('EXISTS', K.frozen) == 1 then return 'frozen' end
if read_only() then return 'read_only' end
local uid = redis.call('HGET', K.uids, ARGV[1])
if uid and redis.call('SISMEMBER', K.sealed, uid) == 1 then
  redis.call('SADD', K.sealed, 'gone:' .. ARGV[1])
end
raze(ARGV[1], ARGV[2])
return 'done'
