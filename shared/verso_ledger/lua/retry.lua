-- Returns a slice to its queue after an error that may pass. ARGV: slice, fence, delay in ms, code, detail,
-- 1 to count it: a worker that shuts down returns its slices uncounted; 1 if it took too long.
local sid, fence = ARGV[1], ARGV[2]
local s = held(sid, fence)
if not s then
  if redis.call('HGET', K.slice .. sid, 'rf') == fence then return 'done' end
  return 'stale'
end
redis.call('HSET', K.slice .. sid, 'rf', fence, 'code', ARGV[4], 'detail', ARGV[5])
local errs = 0
if ARGV[6] == '1' then errs = redis.call('HINCRBY', K.slice .. sid, 'errs', 1) end
local timeouts = 0
if ARGV[7] == '1' then timeouts = redis.call('HINCRBY', K.slice .. sid, 'tout', 1) end
if timeouts >= P.max_timeouts and s.ph == 'work' and not promised(s.kind) then
  redis.call('ZREM', K.leased .. s.q, sid)
  end_work(sid, s, 'failed', 0, s.items, ARGV[4], ARGV[5])
  forget(sid)
elseif errs >= P.max_errors then
  make_dead_letter(sid, s, ARGV[4], ARGV[5])
else
  -- Doubled each time: what a slice needs may take a minute to come back, and the errors are few.
  make_ready(sid, s, math.min(tonumber(ARGV[3]) * 2 ^ math.max(0, errs - 1), P.max_delay_ms))
end
return 'done'
