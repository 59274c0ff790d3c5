-- Grants the dead slices of a job a new budget of attempts. ARGV: job. Same job, same sequence
-- numbers: what was written later keeps its precedence.
local id = ARGV[1]
local v = redis.call('HMGET', K.job .. id, 'st', 'slices', 'n_unverified')
if not v[1] then return 'unknown' end
if v[1] ~= 'dead' and (tonumber(v[3]) or 0) == 0 then return v[1] end
local items, revived = 0, 0
for n = 0, tonumber(v[2]) - 1 do
  local sid = id .. '.' .. n
  local s = read_slice(sid)
  if s and s.st == 'dead' and redis.call('EXISTS', K.payload .. sid) == 1 then
    redis.call('ZREM', K.dead, sid)
    redis.call('HSET', K.slice .. sid, 'crash', 0, 'errs', 0, 'again', 0)
    redis.call('HDEL', K.slice .. sid, 'code', 'detail')
    redis.call('PERSIST', K.slice .. sid)
    redis.call('PERSIST', K.payload .. sid)
    make_ready(sid, s, 0)
    if s.ph == 'work' then
      note_work(s.queue)
      burden(s, 1)
      items, revived = items + s.items, revived + 1
    end
  end
end
redis.call('HSET', K.job .. id, 'n_unverified', 0)
if revived == 0 then return v[1] end
redis.call('HINCRBY', K.job .. id, 'err', -items)
redis.call('HINCRBY', K.job .. id, 'done', -revived)
redis.call('HINCRBY', K.job .. id, 'n_dead', -revived) -- one whose payload is gone stays dead
redis.call('HSET', K.job .. id, 'st', 'queued', 'deadline', 0)
redis.call('HDEL', K.job .. id, 'end', 'code', 'detail')
redis.call('ZREM', K.deadlines, id)
keep_job(id, nil)
emit(id)
return 'queued'
