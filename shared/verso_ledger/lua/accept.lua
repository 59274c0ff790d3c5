-- Accepts a job: job, slices and idempotency key in one step.
-- ARGV: job, kind, queue, tenant, idempotency key ('' none), body hash, deadline in ms from now
-- (0 none), seconds to keep, max slices, max bytes, seconds to keep the idempotency key,
-- 1 if the payloads were staged, count, urgency, the tenant's max slices, its max bytes, webhook
-- ('' none), traceparent ('' none), 1 if the caller waits, seconds to keep a read that its caller waits for
-- (0: as all others); uid ('' none) and hash of the source that the lines are of, where it must stand, where it
-- stands then; w or r, whether it may write, and the collections that it concerns as users know them, with spaces
-- between, each with = and when it was made, if that is known; then for each slice: items, bytes, cost, payload, of
-- lines their uid and count; then identities, if there are any (see each_identity).
-- Returns: new, job, 1 if a wake-up is needed, slices the tenant may still bring, seconds until the queue
-- will have drained; or dup and the job; or conflict; or full and the seconds to wait; or known, if an identity is;
-- or elsewhere and where the source stands; or moving, if a collection moves to another ledger or has moved; or rolled,
-- if a partition by time takes no more lines; or replaced, if a collection was made at another time.
local FIRST, STEP = 26, 5
local job, kind, queue, tenant = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local staged, count, urgency, hook = ARGV[12] == '1', tonumber(ARGV[13]), ARGV[14], ARGV[17]
local items, bytes = 0, 0
for n = 0, count - 1 do
  items = items + tonumber(ARGV[FIRST + n * STEP])
  bytes = bytes + tonumber(ARGV[FIRST + 1 + n * STEP])
end
if staged then redeem(job, count, bytes) end
if redis.call('EXISTS', K.job .. job) == 1 then return { 'new', job } end -- our own call, repeated

-- Payloads that were staged for a job that is not made go with it.
local function no(...)
  for n = 0, staged and count - 1 or -1 do redis.call('UNLINK', K.payload .. job .. '.' .. n) end
  return { ... }
end

if WRITES[kind] and read_only() then return no('read_only') end
local idem = K.idem .. tenant .. ':' .. ARGV[5]
if ARGV[5] ~= '' then
  local v = redis.call('HMGET', idem, 'job', 'hash')
  if v[1] and redis.call('EXISTS', K.job .. v[1]) == 1 then
    if v[2] == ARGV[6] then return no('dup', v[1]) end
    return no('conflict', v[1])
  end
end
local writes, concerned = string.match(ARGV[25], '^(%a) (.*)$')
for word in string.gmatch(concerned or '', '%S+') do
  local name, made = string.match(word, '^([^=]+)=?(.*)$')
  if replaced(name, made) then return no('replaced') end
  if shut('n:' .. name, writes == 'w') then return no('moving') end
  if kind == 'ingest_lines' and has_rolled(name) then return no('rolled') end
end
if hook ~= '' and redis.call('HEXISTS', K.webhooks .. tenant, hook) == 0 then return no('nohook') end
for n = 0, staged and count - 1 or -1 do
  if redis.call('EXISTS', K.payload .. job .. '.' .. n) == 0 then return no('missing', n) end
end
local limits = { tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[15]), tonumber(ARGV[16]) }
local wait_s = full_for(queue, tenant, count, bytes, limits)
if wait_s then return no('full', wait_s) end
local source = ARGV[21] ~= '' and source_position(ARGV[21], ARGV[22])
if source and source.at and source.at ~= ARGV[23] then return no('elsewhere', source.at) end
local identities = ARGV[FIRST + count * STEP] and FIRST + count * STEP
if identities then
  local known = false
  each_identity(identities, function(sets, hash) known = known or is_known(sets, hash) end)
  if known then return no('known') end
  each_identity(identities, remember)
end
if source then source.move(ARGV[24]) end
local v = redis.call('HMGET', K.load, queue .. ':slices', queue .. ':' .. tenant .. ':slices')
for i = 1, 2 do v[i] = tonumber(v[i]) or 0 end

local deadline = tonumber(ARGV[7])
if deadline > 0 then
  deadline = now + deadline
  redis.call('ZADD', K.deadlines, deadline, job)
end
redis.call('HSET', K.job .. job, 'kind', kind, 'queue', queue, 'tenant', tenant, 'st', 'queued',
  'made', now, 'deadline', deadline, 'keep', ARGV[8], 'slices', count, 'items', items,
  'ok', 0, 'err', 0, 'done', 0, 'att', 0, 'u', urgency)
if hook ~= '' then redis.call('HSET', K.job .. job, 'hook', hook) end
if ARGV[18] ~= '' then redis.call('HSET', K.job .. job, 'trace', ARGV[18]) end
if ARGV[19] == '1' then redis.call('HSET', K.job .. job, 'wait', 1) end
local brief = tonumber(ARGV[20])
if brief > 0 then redis.call('HSET', K.job .. job, 'brief', brief, 'idem', ARGV[5]) end
if ARGV[5] ~= '' then
  redis.call('HSET', idem, 'job', job, 'hash', ARGV[6])
  redis.call('EXPIRE', idem, ARGV[11])
end
local numbers = math.max(1, count) -- a job without slices has a place in the list as well
local seq = redis.call('INCRBY', K.seq, numbers) - numbers
if brief > 0 then
  list_read(job, tenant, seq + 1, brief)
else
  redis.call('ZADD', K.jobs .. tenant, seq + 1, job)
end
redis.call('SADD', K.tenants, tenant)
local waiting = redis.call('EXISTS', K.turns .. queue)
for n = 0, count - 1 do
  local at = FIRST + n * STEP
  local sid = job .. '.' .. n
  if staged then
    redis.call('PERSIST', K.payload .. sid)
  else
    redis.call('SET', K.payload .. sid, ARGV[at + 3])
  end
  redis.call('HSET', K.slice .. sid, 'job', job, 'n', n, 'kind', kind, 'queue', queue, 'q', queue,
    'items', ARGV[at], 'bytes', ARGV[at + 1], 'cost', ARGV[at + 2], 'seq', seq + n + 1, 'ph', 'work', 'due', now,
    'ten', tenant, 'u', urgency, 'st', 'queued', 'att', 0)
  lane_add(sid, { q = queue, tenant = tenant, urgency = tonumber(urgency), seq = seq + n + 1 })
  if promised(kind) then redis.call('ZADD', K.pending, seq + n + 1, sid) end
  local uid, lines = string.match(ARGV[at + 4], '^(%d+) (%d+)$')
  if uid then note_arrival(uid, sid, lines) end
end
announce_arrivals()
if count == 0 then
  end_job(job, 'succeeded')
else
  note_work(queue)
  load_add(queue, count, bytes)
  tenant_add(queue, tenant, count, bytes)
  if brief == 0 then redis.call('PUBLISH', K.news, job .. ' queued') end -- for lists that are followed
end
-- A worker that is at work claims again when it has finished. A wake-up through the broker is needed only
-- when no subscriber received this message and no slice that was announced before is still waiting; also for urgent
-- bulk work, since a slot is kept for it that what waits may not have.
local received = redis.call('PUBLISH', K.wake .. queue, '')
if queue == 'bulk' and tonumber(urgency) < P.usual_urgency then waiting = 0 end
local left = math.max(0, math.min(limits[1] - v[1], limits[3] - v[2]) - count)
return { 'new', job, (received == 0 and waiting == 0) and 1 or 0, left, math.ceil((v[1] + count) * drain_ms(queue) / 1000) }
