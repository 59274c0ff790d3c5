-- Replaces a value of a log collection by another that says the same, if it is still as the caller has read it: a
-- damaged one, or a segment whose blocks move to cold storage. ARGV: own name, uid, kind of key, where (index, field,
-- stream:first, field's name), what is there, what replaces it, right labels of a stream, until when in ms it may (''
-- always): the object that a later call names may have been removed. Returns whether it was replaced. While a collection
-- moves to another ledger no segment of it gets another object: a worker copies those that there are (see to_cold).
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
if ARGV[8] ~= '' and now > tonumber(ARGV[8]) then return 'late' end
local uid, kind, where, old, new = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if lines_uid(ARGV[1]) ~= uid then return 'gone' end
if ARGV[8] ~= '' and redis.call('SISMEMBER', K.tracked, uid) == 1 then return 'moves' end
if kind == 'shapes' or kind == 'statements' then
  local name = kind == 'shapes' and K.shapes .. uid or K.statements .. redis.call('HGET', K.uids, ARGV[1])
  if redis.call('LINDEX', name, where) ~= old then return 'moved' end
  redis.call('LSET', name, where, new)
elseif kind == 'fitted' then
  if redis.call('HGET', K.fitted .. uid, where) ~= old then return 'moved' end
  redis.call('HSET', K.fitted .. uid, where, new)
elseif kind == 'streams' then -- the field, which is the labels, may be what is damaged: ARGV[7] is the right one
  local name = K.streams .. uid
  if redis.call('HGET', name, where) ~= old then return 'moved' end
  if where ~= ARGV[7] and redis.call('HEXISTS', name, ARGV[7]) == 1 then return 'moved' end
  redis.call('HDEL', name, where)
  redis.call('HSET', name, ARGV[7], new)
elseif kind == 'segments' then
  local score = redis.call('ZSCORE', K.segments .. uid, old)
  if not score then return 'moved' end
  redis.call('ZREM', K.segments .. uid, old)
  redis.call('ZADD', K.segments .. uid, score, new)
else -- segment, gone
  local name = (kind == 'gone' and K.gone or K.segment) .. uid .. ':' .. where
  if redis.call('GET', name) ~= old then return 'moved' end
  redis.call('SET', name, new)
  touch(uid, 's:' .. where)
  if kind == 'segment' then
    log_add(uid, 'bytes', #new - #old)
    local more = cold_size(new) - cold_size(old)
    if more > 0 then log_add(uid, 'cold', more) else log_less(uid, 'cold', -more) end
  end
end
return 'done'
