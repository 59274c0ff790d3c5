-- Deletes verified raw texts whose grace is over, and sweeps deleted collections. ARGV: n.
if read_only() then return 0 end
local n = tonumber(ARGV[1])
local dropped = 0
for _, sid in ipairs(redis.call('ZRANGEBYSCORE', K.drop, '-inf', now, 'LIMIT', 0, n)) do
  redis.call('ZREM', K.drop, sid)
  if redis.call('HGET', K.slice .. sid, 'ph') == 'verified' then
    forget(sid)
    dropped = dropped + 1
  end
end

local head = redis.call('LINDEX', K.dropped, 0)
if head then
  local uid, buckets, from = string.match(head, '(%S+) (%d+) (%d+)')
  if sweep_segments(uid, P.sweep_buckets) then return dropped end -- there are more
  local last = math.min(tonumber(buckets), tonumber(from) + P.sweep_buckets) - 1
  for bucket = tonumber(from), last do
    local name = K.docs .. uid .. ':' .. bucket
    for _, document in ipairs(redis.call('HKEYS', name)) do
      redis.call('UNLINK', K.long .. uid .. ':' .. document, K.text .. uid .. ':' .. document)
    end
    redis.call('UNLINK', name)
  end
  if last + 1 >= tonumber(buckets) then
    redis.call('LPOP', K.dropped)
  else
    redis.call('LSET', K.dropped, 0, uid .. ' ' .. buckets .. ' ' .. last + 1)
  end
end
return dropped
