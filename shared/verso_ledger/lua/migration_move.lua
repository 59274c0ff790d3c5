-- Moves a migration on, if it still stands where the caller saw it. ARGV: collection, state seen, new
-- state ('' forgets it); then what goes with it: 'none', 'seal', 'open' or 'switch', source, target.
-- Returns 1 if this call moved it.
if redis.call('HGET', K.migrations, ARGV[1]) ~= ARGV[2] then return 0 end
local what, source, target = ARGV[4], ARGV[5], ARGV[6]
local uid = redis.call('HGET', K.uids, source) or ''
if what == 'seal' then
  redis.call('SADD', K.sealed, uid)
elseif what == 'open' then
  redis.call('SREM', K.sealed, uid)
elseif what == 'switch' then
  local new = redis.call('HGET', K.uids, target)
  if not new or redis.call('SISMEMBER', K.sealed, uid) == 0 then return 0 end
  -- The source stays sealed: what was computed for it must be computed again.
  redis.call('HSET', K.aliases, ARGV[1], target)
  redis.call('SADD', K.hidden, source)
  redis.call('ZUNIONSTORE', K.tombs .. new, 2, K.tombs .. new, K.tombs .. uid, 'AGGREGATE', 'MAX')
end
if ARGV[3] == '' then
  redis.call('HDEL', K.migrations, ARGV[1])
else
  redis.call('HSET', K.migrations, ARGV[1], ARGV[3])
end
return 1
