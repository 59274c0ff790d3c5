-- Moves the scrub on, if it still stands where the caller saw it. ARGV: turn, 1 to begin a pass, 1 to
-- end it, most damaged listed; then four counted lists: fields and values to set, counters and what
-- to add, fields to remove, damaged documents. Returns 1 if this call moved it.
local turn = tonumber(redis.call('HGET', K.scrub, 'turn')) or 0
if turn ~= tonumber(ARGV[1]) then return 0 end

local at = 5
local function list(width)
  local found = {}
  for i = 1, tonumber(ARGV[at]) * width do found[i] = ARGV[at + i] end
  at = at + 1 + #found
  return found
end
local set, add, gone, damaged = list(2), list(2), list(1), list(1)

redis.call('HINCRBY', K.scrub, 'turn', 1)
if ARGV[2] == '1' then
  local number = redis.call('HINCRBY', K.scrub, 'number', 1)
  local old = redis.call('HMGET', K.scrub, 'started', 'floor')
  local kept = redis.call('HMGET', K.scrub, 'recent', 'recent_collection', 'recent_bucket',
    'recent_documents')
  -- Every slice below the floor has ended: what no entry names yet, none of them will. A number of
  -- the pass's own parts what was noted before it from what is noted in it.
  local own = redis.call('INCR', K.seq)
  redis.call('HSETNX', K.ages, math.floor(now / 86400000), string.format('%.0f', own))
  local floor = redis.call('ZRANGE', K.pending, 0, 0, 'WITHSCORES')[2] or own
  redis.call('UNLINK', K.scrub, K.damaged)
  redis.call('HSET', K.scrub, 'turn', turn + 1, 'number', number, 'started', now, 'floor', floor,
    'prior', old[1] or '', 'prior_floor', old[2] or '')
  if kept[1] then
    redis.call('HSET', K.scrub, 'recent', kept[1], 'recent_collection', kept[2], 'recent_bucket', kept[3],
      'recent_documents', kept[4] or 0)
  end
end
if ARGV[3] == '1' then redis.call('HSET', K.scrub, 'ended', now) end
for i = 1, #set, 2 do redis.call('HSET', K.scrub, set[i], set[i + 1]) end
for i = 1, #add, 2 do
  redis.call('HINCRBY', K.scrub, add[i], add[i + 1])
  redis.call('HINCRBY', K.totals, 'scrub:' .. add[i], add[i + 1])
  -- A pass that left entries out has not struck off what they name.
  if add[i] == 'unread' then redis.call('UNLINK', K.orphans) end
end
for _, name in ipairs(gone) do redis.call('HDEL', K.scrub, name) end
for _, line in ipairs(damaged) do
  if redis.call('LLEN', K.damaged) < tonumber(ARGV[4]) then redis.call('RPUSH', K.damaged, line) end
end
return 1
