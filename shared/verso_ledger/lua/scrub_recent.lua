-- Requests that documents written after a sequence number are read before all others. ARGV: that number.
-- Of several such the earliest counts, and the walk restarts.
local old = tonumber(redis.call('HGET', K.scrub, 'recent'))
local since = math.min(old or tonumber(ARGV[1]), tonumber(ARGV[1]))
redis.call('HSET', K.scrub, 'recent', string.format('%.0f', since), 'recent_collection', '', 'recent_bucket', 0,
  'recent_documents', 0)
redis.call('HINCRBY', K.scrub, 'turn', 1)
return 1
