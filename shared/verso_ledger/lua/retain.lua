-- Keeps a read as other jobs are kept, because its caller was not told of its end and asks again later.
-- ARGV: job, seconds to keep its idempotency key. Returns its status, or unknown.
local job = ARGV[1]
local v = redis.call('HMGET', K.job .. job, 'st', 'brief', 'idem', 'tenant', 'keep', 'slices')
if not v[1] then return 'unknown' end
if not v[2] then return v[1] end
redis.call('HDEL', K.job .. job, 'brief', 'idem', 'wait')
local seq = redis.call('ZSCORE', K.reads .. v[4], job)
if seq then
  redis.call('ZREM', K.reads .. v[4], job)
  redis.call('ZADD', K.jobs .. v[4], seq, job)
end
emit(job)
if terminal(v[1]) then
  keep_job(job, v[5])
  for n = 0, tonumber(v[6]) - 1 do redis.call('EXPIRE', K.slice .. job .. '.' .. n, P.keep_s) end
  if v[3] ~= '' then redis.call('EXPIRE', K.idem .. v[4] .. ':' .. v[3], ARGV[2]) end
end
return v[1]
