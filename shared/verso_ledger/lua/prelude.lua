-- What every script shares. Before this file stand K (names of keys) and P (policy numbers).
-- A script checks everything first and then writes: Lua in the server has no rollback.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function terminal(st)
  return st ~= 'queued' and st ~= 'running'
end

-- The outcome that a caller waits for, published with the end of its job; nil where it is long or in parts.
local function outcome(job, slices)
  if slices ~= '1' or redis.call('HSTRLEN', K.result .. job, '0') > P.published_bytes then return nil end
  return cjson.encode(redis.call('HGETALL', K.job .. job)) .. '\n'
    .. (redis.call('HGET', K.result .. job, '0') or '')
end

-- Adds an event to a job and publishes it; `progress` is a worker's report, JSON. Of a job whose caller
-- waits for nothing but the end, only the end is published; `notified` if the caller has the result already.
-- A brief job has no events: nobody but the caller that waits knows its id.
local function emit(job, progress, notified)
  local v = redis.call('HMGET', K.job .. job, 'st', 'done', 'slices', 'items', 'ok', 'err', 'wait', 'brief')
  if not v[1] then return end -- it has expired
  if not v[8] then
    redis.call('XADD', K.events .. job, 'MAXLEN', '~', P.max_events, '*', 'status', v[1], 'done', v[2],
      'slices', v[3], 'items', v[4], 'ok', v[5], 'err', v[6], unpack(progress and { 'progress', progress } or {}))
  end
  if not v[7] then
    redis.call('PUBLISH', K.news, job .. ' ' .. v[1])
  elseif terminal(v[1]) then
    local all = not notified and outcome(job, v[3])
    redis.call('PUBLISH', K.news, job .. ' ' .. v[1] .. (all and '\n' .. all or ''))
  end
end

local function load_add(queue, slices, bytes)
  redis.call('HINCRBY', K.load, queue .. ':slices', slices)
  redis.call('HINCRBY', K.load, queue .. ':bytes', bytes)
end

-- Room for payloads that are stored before their job is accepted. A reservation that is not redeemed ends
-- when the payloads do.
local function staged_name(job, slices, bytes) return job .. ' ' .. slices .. ' ' .. bytes end

local function reserve(job, slices, bytes, ms)
  local name = staged_name(job, slices, bytes)
  if redis.call('ZADD', K.staged, now + ms, name) == 1 then load_add('staged', slices, bytes) end
end

local function redeem(job, slices, bytes)
  if redis.call('ZREM', K.staged, staged_name(job, slices, bytes)) == 1 then
    load_add('staged', -slices, -bytes)
  end
end

local function end_reservations(n)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', K.staged, '-inf', now, 'LIMIT', 0, n)) do
    local job, slices, bytes = string.match(name, '^(.*) (%d+) (%d+)$')
    redeem(job, slices, bytes)
  end
end

-- What one tenant has unfinished in a queue; a tenant with nothing there has no fields.
local function tenant_add(queue, tenant, slices, bytes)
  local name = queue .. ':' .. tenant
  if redis.call('HINCRBY', K.load, name .. ':slices', slices) == 0 then
    redis.call('HDEL', K.load, name .. ':slices', name .. ':bytes')
  else
    redis.call('HINCRBY', K.load, name .. ':bytes', bytes)
  end
end

-- Unfinished work of a slice, in the queue's sum and in its tenant's.
local function burden(s, sign)
  load_add(s.queue, sign, sign * s.bytes)
  if s.counted then tenant_add(s.queue, s.tenant, sign, sign * s.bytes) end
end

-- Milliseconds between the ends of two slices of a queue while there is work, as a mean over P.drained of
-- them; longer if the last end, or the first slice since the queue was empty, is longer ago.
local function drain_ms(queue)
  local v = redis.call('HMGET', K.load, queue .. ':mean', queue .. ':at', queue .. ':slices')
  local age = (tonumber(v[3]) or 0) > 0 and now - (tonumber(v[2]) or now) or 0
  return math.max(tonumber(v[1]) or P.drain_ms, age, 1)
end

-- Work is about to come to a queue; in one that was empty nothing ended because there was nothing.
local function note_work(queue)
  if (tonumber(redis.call('HGET', K.load, queue .. ':slices')) or 0) == 0 then
    redis.call('HSET', K.load, queue .. ':at', now)
  end
end

local function note_drained(queue)
  local v = redis.call('HMGET', K.load, queue .. ':mean', queue .. ':at')
  local passed = math.min(math.max(0, now - (tonumber(v[2]) or now)), P.max_wait_s * 1000)
  local mean = tonumber(v[1]) or passed
  mean = mean + (passed - mean) / P.drained
  redis.call('HSET', K.load, queue .. ':mean', string.format('%.3f', mean), queue .. ':at', now)
end

-- Seconds to wait until so much fits under the limits of a queue, {max slices, max bytes, the tenant's max
-- slices, its max bytes}; nil when it fits now. What is staged counts as waiting.
local function full_for(queue, tenant, count, bytes, limits)
  local mine = queue .. ':' .. tenant
  local v = redis.call('HMGET', K.load, queue .. ':slices', queue .. ':bytes', mine .. ':slices', mine .. ':bytes',
    'staged:slices', 'staged:bytes')
  for i = 1, 6 do v[i] = tonumber(v[i]) or 0 end
  -- Slices that must end before so much fits; 0 or less when it fits now.
  local function over(slices_now, bytes_now, max_slices, max_bytes)
    local mean_bytes = slices_now > 0 and math.max(1, bytes_now / slices_now) or 1
    return math.max(slices_now + count - max_slices, (bytes_now + bytes - max_bytes) / mean_bytes)
  end
  local all = over(v[1] + v[5], v[2] + v[6], limits[1], limits[2])
  local own = over(v[3], v[4], limits[3], limits[4])
  if all <= 0 and own <= 0 then return nil end
  -- a tenant's own slices end at its share of the rate
  local tenants = math.max(1, redis.call('ZCARD', K.turns .. queue))
  local wait_s = math.max(all, own * tenants, 1) * drain_ms(queue) / 1000
  return math.ceil(math.min(P.max_wait_s, math.max(1, wait_s)))
end

local function keep_job(job, seconds)
  for _, kind in ipairs({ K.job, K.result, K.events }) do
    if seconds then
      redis.call('EXPIRE', kind .. job, seconds)
    else
      redis.call('PERSIST', kind .. job)
    end
  end
end

-- Whether a dead slice of this kind is kept for ever: its payload is what a caller was promised.
local function promised(kind)
  return kind == 'ingest' or kind == 'ingest_lines' or kind == 'delete' or kind == 'update' or kind == 'delete_matching'
end

-- Whether this ledger is known to be older than what it has acknowledged.
local function read_only()
  return redis.call('EXISTS', K.halted) == 1
end

-- Whether a collection of this ledger takes no such work now, as it moves to another ledger or has moved. The field is
-- n: and the name as users know it, for what is accepted, or o: and the own name, for what is stored. Writes are
-- accepted again when the time of the move is over, unless the collection has moved by then: the first one ends it for
-- good, so that the move does not go on past it if the clock is set back.
local function shut(field, writes)
  local state = redis.call('HGET', K.shut, field)
  if not state then return false end
  local till = tonumber(string.match(state, '^%a (%d+)$'))
  if not till then return true end
  if not writes or till > now then return writes end
  redis.call('HDEL', K.shut, field)
  return false
end

-- Whether a collection is another one than the caller knows under its name: it was made at another time than `made`,
-- '' if the caller knows none. A migration and a move leave that time as it is.
local function replaced(name, made)
  if not made or made == '' then return false end
  local row = redis.call('HGET', K.collections, redis.call('HGET', K.aliases, name) or name)
  return row and not string.find(row, '"created":"' .. made .. '"', 1, true)
end

-- Work that changes what is stored; all else only reads.
local WRITES = { ingest = true, ingest_lines = true, delete = true, update = true, delete_matching = true,
  collection_change = true, collection_create = true, collection_delete = true,
  migrate = true, scrub = true }

-- The outbox of webhooks: written in the same step as the end of the job, sent by the keeper.
local function announce(job, st, tenant, hook)
  local token = redis.call('HINCRBY', K.totals, 'hooks', 1)
  local v = redis.call('HMGET', K.job .. job, 'kind', 'items', 'ok', 'err', 'made', 'code', 'detail')
  redis.call('HSET', K.hookitem .. token, 'hook', hook, 'tenant', tenant, 'job', job, 'st', st, 'at', now,
    'kind', v[1], 'items', v[2], 'ok', v[3], 'err', v[4], 'made', v[5], 'code', v[6] or '',
    'detail', v[7] or '', 'att', 0)
  redis.call('ZADD', K.hooks, now, token)
end

local function end_job(job, st, notified)
  local v = redis.call('HMGET', K.job .. job, 'kind', 'keep', 'tenant', 'hook', 'brief', 'idem', 'n_verify')
  redis.call('HSET', K.job .. job, 'st', st, 'end', now)
  redis.call('ZREM', K.deadlines, job)
  redis.call('HINCRBY', K.totals, 'jobs:' .. v[1] .. ':' .. st, 1)
  if v[4] then announce(job, st, v[3], v[4]) end
  emit(job, nil, notified)
  if v[5] then
    keep_job(job, v[5])
    if v[6] ~= '' then redis.call('EXPIRE', K.idem .. v[3] .. ':' .. v[6], v[5]) end
  elseif st ~= 'dead' then
    -- A job with texts to verify is kept until they are: a letter that dies of it can be replayed.
    if (tonumber(v[7]) or 0) <= 0 then keep_job(job, v[2]) end
  elseif not promised(v[1]) then
    keep_job(job, P.dead_keep_s)
  end
end

local function verdict(job)
  local v = redis.call('HMGET', K.job .. job, 'n_dead', 'n_failed', 'n_expired', 'ok', 'err')
  if (tonumber(v[1]) or 0) > 0 then return 'dead' end
  if (tonumber(v[2]) or 0) > 0 then return 'failed' end
  if (tonumber(v[3]) or 0) > 0 then return 'expired' end
  if tonumber(v[4]) == 0 and tonumber(v[5]) > 0 then return 'failed' end
  return 'succeeded'
end

-- Ends the work of one slice. s: {job, kind, queue, bytes, notified}. The last slice ends the job.
local function end_work(sid, s, st, ok, err, code, detail)
  local job = K.job .. s.job
  redis.call('HSET', K.slice .. sid, 'st', st, 'ok', ok, 'err', err)
  redis.call('HINCRBY', job, 'ok', ok)
  redis.call('HINCRBY', job, 'err', err)
  if st ~= 'succeeded' then redis.call('HINCRBY', job, 'n_' .. st, 1) end
  if code then
    redis.call('HSET', K.slice .. sid, 'code', code, 'detail', detail)
    if redis.call('HSETNX', job, 'code', code) == 1 then redis.call('HSET', job, 'detail', detail) end
  end
  burden(s, -1)
  note_drained(s.queue)
  if st ~= 'dead' then redis.call('ZREM', K.pending, sid) end
  local done = redis.call('HINCRBY', job, 'done', 1)
  if done == tonumber(redis.call('HGET', job, 'slices')) then
    end_job(s.job, verdict(s.job), s.notified)
  else
    emit(s.job)
  end
end

-- Seconds that a slice is kept after its job has ended.
local function slice_keep_s(sid)
  return redis.call('HGET', K.job .. string.match(sid, '^(.*)%.%d+$'), 'brief') or P.keep_s
end

-- Drops the payload of a slice whose text is no longer needed.
local function forget(sid)
  redis.call('UNLINK', K.payload .. sid)
  redis.call('EXPIRE', K.slice .. sid, slice_keep_s(sid))
end

-- Lists a read that its caller waits for, apart from the jobs; only the newest are listed.
local function list_read(job, tenant, seq, brief)
  redis.call('ZADD', K.reads .. tenant, seq, job)
  redis.call('ZREMRANGEBYRANK', K.reads .. tenant, 0, -1 - P.max_reads)
  redis.call('EXPIRE', K.reads .. tenant, math.max(P.keep_s, brief))
end

local function read_slice(sid)
  local v = redis.call('HMGET', K.slice .. sid, 'job', 'n', 'kind', 'queue', 'bytes', 'items', 'seq',
    'st', 'ph', 'att', 'q', 'due', 'ten', 'u')
  if not v[1] then return nil end
  return { job = v[1], n = v[2], kind = v[3], queue = v[4], bytes = tonumber(v[5]),
    items = tonumber(v[6]), seq = tonumber(v[7]) or 0, st = v[8], ph = v[9], att = tonumber(v[10]),
    q = v[11], due = tonumber(v[12]), tenant = v[13] or 'default', counted = v[13],
    urgency = tonumber(v[14] or 3) }
end

-- Lanes. The due slices of a queue wait in one lane for each tenant: the most urgent first, then the
-- oldest. Whose turn it is follows start-time fair queueing (Goyal, Vin & Cheng 1996, section 2): a
-- turn starts at the later of the queue's virtual time and the finish of the tenant's last turn,
-- lasts as long as its work costs, and the earliest start goes next. So a tenant with a million
-- slices and one with ten take turns, and a tenant that was idle has saved up nothing.
local URGENCY = 2 ^ 48 -- sequence numbers stay below it

local function turn_start(queue, tenant)
  local virtual = tonumber(redis.call('HGET', K.load, queue .. ':virtual') or 0)
  return math.max(virtual, tonumber(redis.call('HGET', K.served .. queue, tenant) or 0))
end

local function lane_of(s) return K.lane .. s.q .. ':' .. s.tenant end

local function lane_add(sid, s)
  redis.call('ZADD', lane_of(s), s.urgency * URGENCY + s.seq, sid)
  if not redis.call('ZSCORE', K.turns .. s.q, s.tenant) then
    redis.call('ZADD', K.turns .. s.q, turn_start(s.q, s.tenant), s.tenant)
  end
end

local function lane_remove(sid, s)
  if redis.call('ZREM', lane_of(s), sid) == 1 and redis.call('EXISTS', lane_of(s)) == 0 then
    redis.call('ZREM', K.turns .. s.q, s.tenant)
  end
end

-- Ends a tenant's turn: its next one starts when this one is over.
local function turn_over(queue, tenant, start, size)
  local finish = start + 1 + size / P.turn_cost
  local virtual = math.max(start, tonumber(redis.call('HGET', K.load, queue .. ':virtual') or 0))
  redis.call('HSET', K.load, queue .. ':virtual', string.format('%.6f', virtual))
  redis.call('HSET', K.served .. queue, tenant, string.format('%.6f', finish))
  if redis.call('ZSCORE', K.turns .. queue, tenant) then
    redis.call('ZADD', K.turns .. queue, finish, tenant)
  end
end

-- Moves slices whose time has come into their lanes.
local function mature(queue, n)
  for _, sid in ipairs(redis.call('ZRANGEBYSCORE', K.ready .. queue, '-inf', now, 'LIMIT', 0, n)) do
    redis.call('ZREM', K.ready .. queue, sid)
    local s = read_slice(sid)
    if s and s.st == 'queued' then lane_add(sid, s) end
  end
end

-- Counts the slices of a queue that are due.
local function count_due(queue)
  local due = redis.call('ZCOUNT', K.ready .. queue, '-inf', now)
  for _, tenant in ipairs(redis.call('ZRANGE', K.turns .. queue, 0, -1)) do
    due = due + redis.call('ZCARD', K.lane .. queue .. ':' .. tenant)
  end
  return due
end

-- Takes a slice out of waiting, wherever it waits.
local function unqueue(sid, s)
  redis.call('ZREM', K.ready .. s.q, sid)
  lane_remove(sid, s)
end

-- The slice, if this fence still holds its lease.
local function held(sid, fence)
  local s = read_slice(sid)
  if s and s.st == 'running' and s.att == tonumber(fence) then return s end
  return nil
end

local function make_ready(sid, s, delay_ms)
  redis.call('HSET', K.slice .. sid, 'st', 'queued', 'due', now + delay_ms, 'q', s.q)
  redis.call('HDEL', K.slice .. sid, 'own', 'lend')
  redis.call('ZREM', K.leased .. s.q, sid)
  if delay_ms > 0 then
    redis.call('ZADD', K.ready .. s.q, now + delay_ms, sid)
  else
    lane_add(sid, s)
  end
end

-- A dead letter: crashed or failed too often. It keeps its payload and can be replayed. A read whose caller
-- waits fails instead: the caller is told, and nobody else would replay it.
local function make_dead_letter(sid, s, code, detail)
  redis.call('ZREM', K.leased .. s.q, sid)
  unqueue(sid, s)
  if redis.call('HEXISTS', K.job .. s.job, 'brief') == 1 then
    end_work(sid, s, 'failed', 0, s.items, code, detail)
    forget(sid)
    return
  end
  redis.call('ZADD', K.dead, now, sid)
  redis.call('HINCRBY', K.totals, 'dead', 1)
  if s.ph == 'work' then
    end_work(sid, s, 'dead', 0, s.items, code, detail)
    if not promised(s.kind) then
      redis.call('EXPIRE', K.slice .. sid, P.dead_keep_s)
      redis.call('EXPIRE', K.payload .. sid, P.dead_keep_s)
    end
  else
    redis.call('HSET', K.slice .. sid, 'st', 'dead', 'code', code, 'detail', detail)
    if redis.call('EXISTS', K.job .. s.job) == 1 then -- accepted by an earlier version, it may have expired
      redis.call('HINCRBY', K.job .. s.job, 'n_unverified', 1)
      keep_job(s.job, nil)
    end
  end
end

-- Whether a slice's number is known for certain. It decides which of two writes of a document takes precedence,
-- so it is held in three places: in the slice, in its tenant's list of jobs, and in `pending` until the
-- commit, in the slice once more from then on. One that differs is damage: two that agree are right.
local function numbered(sid, s)
  local job = tonumber(redis.call('ZSCORE', K.jobs .. s.tenant, s.job))
  local listed = job and job + s.n
  local third = tonumber(s.ph == 'work' and redis.call('ZSCORE', K.pending, sid)
    or redis.call('HGET', K.slice .. sid, 'cs'))
  if s.seq == (third or listed or s.seq) or s.seq == listed then return true end
  if listed ~= third then return false end
  redis.call('HSET', K.slice .. sid, 'seq', string.format('%.0f', listed))
  s.seq = listed
  return true
end
