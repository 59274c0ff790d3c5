-- Starts a migration. ARGV: collection, source, source's uid, target ('' to code again in place),
-- target as JSON, the state that the caller saw ('' none), new state, token of the room made for the
-- target, the source as JSON that the caller read. Returns 1 if this call started it.
--
-- The target's uid is the source's and a fraction: it counts as born with the source, so that a
-- write that was queued before the migration is not taken for one to an earlier collection.
-- The target has the settings that the caller read: a change since would be lost at the switch.
local seen = redis.call('HGET', K.migrations, ARGV[1]) or ''
if seen == ARGV[7] then return 1 end -- our own call, repeated
if redis.call('HGET', K.collections, ARGV[2]) ~= ARGV[9] then return 0 end
if redis.call('SISMEMBER', K.tracked, born(ARGV[3])) == 1 then return 'busy' end -- it moves to another ledger
if seen ~= ARGV[6] or redis.call('HGET', K.uids, ARGV[2]) ~= ARGV[3] then return 0 end
if ARGV[4] ~= '' then
  if redis.call('HEXISTS', K.collections, ARGV[4]) == 1 or not take_room(ARGV[8]) then return 0 end
  local born = string.match(ARGV[3], '^%d+')
  local uid = born .. '.' .. redis.call('INCR', K.seq)
  redis.call('HSET', K.uids, ARGV[4], uid)
  redis.call('HSET', K.counts .. uid, 'full', now)
  redis.call('HSET', K.collections, ARGV[4], ARGV[5])
  redis.call('SADD', K.hidden, ARGV[4])
end
redis.call('HSET', K.migrations, ARGV[1], ARGV[7])
return 1
