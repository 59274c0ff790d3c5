-- Ends a slice that cannot succeed. ARGV: slice, fence, code, detail. What was promised to be kept
-- becomes a dead letter instead, because its payload is the only copy.
local sid, fence = ARGV[1], ARGV[2]
local s = held(sid, fence)
if not s then
  if redis.call('HGET', K.slice .. sid, 'rf') == fence then return 'done' end
  return 'stale'
end
redis.call('HSET', K.slice .. sid, 'rf', fence)
if s.ph == 'verify' or promised(s.kind) then
  make_dead_letter(sid, s, ARGV[3], ARGV[4])
else
  redis.call('ZREM', K.leased .. s.q, sid)
  end_work(sid, s, 'failed', 0, s.items, ARGV[3], ARGV[4])
  forget(sid)
end
return 'done'
