-- Ends a job at its owner's request. ARGV: job. Slices already committed stay as they are, and are
-- still verified; the commit of a running slice is refused.
local id = ARGV[1]
local v = redis.call('HMGET', K.job .. id, 'st', 'slices')
if not v[1] then return 'unknown' end
if terminal(v[1]) then return v[1] end
local items, ended = 0, 0
for n = 0, tonumber(v[2]) - 1 do
  local sid = id .. '.' .. n
  local s = read_slice(sid)
  if s and s.ph == 'work' and not terminal(s.st) then
    unqueue(sid, s)
    redis.call('ZREM', K.leased .. s.q, sid)
    redis.call('ZREM', K.pending, sid)
    redis.call('HSET', K.slice .. sid, 'st', 'cancelled', 'ok', 0, 'err', s.items)
    burden(s, -1)
    forget(sid)
    items, ended = items + s.items, ended + 1
  elseif s and s.ph == 'work' and s.st == 'dead' then -- counted when it died; nobody can replay it now
    redis.call('ZREM', K.dead, sid)
    redis.call('ZREM', K.pending, sid)
    redis.call('HSET', K.slice .. sid, 'st', 'cancelled')
    forget(sid)
  end
end
redis.call('HINCRBY', K.job .. id, 'err', items)
redis.call('HINCRBY', K.job .. id, 'done', ended)
redis.call('HSET', K.job .. id, 'code', 'cancelled', 'detail', 'cancelled by its owner')
end_job(id, 'cancelled')
return 'cancelled'
