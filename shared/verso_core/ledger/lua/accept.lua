-- Takes a job in: job, slices and idempotency key in one step.
-- ARGV: job, kind, queue, tenant, idempotency key ('' none), body hash, deadline in ms from now
-- (0 none), seconds to keep, max slices, max bytes, seconds to keep the idempotency key,
-- 1 if the payloads were staged, count; then for each slice: items, bytes, payload.
local job, kind, queue, tenant = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local staged, count = ARGV[12] == '1', tonumber(ARGV[13])
if redis.call('EXISTS', K.job .. job) == 1 then return { 'new', job } end -- our own call, repeated

local idem = K.idem .. tenant .. ':' .. ARGV[5]
if ARGV[5] ~= '' then
  local v = redis.call('HMGET', idem, 'job', 'hash')
  if v[1] and redis.call('EXISTS', K.job .. v[1]) == 1 then
    if v[2] == ARGV[6] then return { 'dup', v[1] } end
    return { 'conflict', v[1] }
  end
end

local items, bytes = 0, 0
for n = 0, count - 1 do
  items = items + tonumber(ARGV[14 + n * 3])
  bytes = bytes + tonumber(ARGV[15 + n * 3])
  if staged and redis.call('EXISTS', K.payload .. job .. '.' .. n) == 0 then return { 'missing', n } end
end
local v = redis.call('HMGET', K.load, queue .. ':slices', queue .. ':bytes')
local slices_now, bytes_now = tonumber(v[1]) or 0, tonumber(v[2]) or 0
local over = slices_now + count - tonumber(ARGV[9])
local over_bytes = bytes_now + bytes - tonumber(ARGV[10])
if over > 0 or over_bytes > 0 then
  local mean_bytes = slices_now > 0 and math.max(1, bytes_now / slices_now) or 1
  local wait_s = math.max(over, over_bytes / mean_bytes, 1) / math.max(drain_rate(queue), 1 / P.drain_s)
  return { 'full', math.ceil(math.min(300, math.max(1, wait_s))) }
end

local deadline = tonumber(ARGV[7])
if deadline > 0 then
  deadline = now + deadline
  redis.call('ZADD', K.deadlines, deadline, job)
end
redis.call('HSET', K.job .. job, 'kind', kind, 'queue', queue, 'tenant', tenant, 'st', 'queued',
  'made', now, 'deadline', deadline, 'keep', ARGV[8], 'slices', count, 'items', items,
  'ok', 0, 'err', 0, 'done', 0, 'att', 0)
if ARGV[5] ~= '' then
  redis.call('HSET', idem, 'job', job, 'hash', ARGV[6])
  redis.call('EXPIRE', idem, ARGV[11])
end
local seq = redis.call('INCRBY', K.seq, count) - count
local waiting = redis.call('ZRANGEBYSCORE', K.ready .. queue, '-inf', now, 'LIMIT', 0, 1)
for n = 0, count - 1 do
  local sid, size = job .. '.' .. n, ARGV[15 + n * 3]
  redis.call('HSET', K.slice .. sid, 'job', job, 'n', n, 'kind', kind, 'queue', queue, 'q', queue,
    'items', ARGV[14 + n * 3], 'bytes', size, 'seq', seq + n + 1, 'st', 'queued', 'ph', 'work',
    'att', 0, 'due', now)
  if staged then
    redis.call('PERSIST', K.payload .. sid)
  else
    redis.call('SET', K.payload .. sid, ARGV[16 + n * 3])
  end
  redis.call('ZADD', K.ready .. queue, now, sid)
  if promised(kind) then redis.call('ZADD', K.pending, seq + n + 1, sid) end
end
load_add(queue, count, bytes)
if count == 0 then end_job(job, 'succeeded') end
-- A hand that is awake hears this. A bell is needed only to wake one: when none heard, and when
-- nothing waited that was rung for already.
local heard = redis.call('PUBLISH', K.wake .. queue, '')
return { 'new', job, (heard == 0 and #waiting == 0) and 1 or 0 }
