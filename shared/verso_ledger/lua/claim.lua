-- Leases due slices of a queue to a worker. ARGV: queue, owner, n, lease in ms, token, kind, slots.
-- More than one slice is leased only where all are of that kind ('' any), which the worker runs as one.
-- At most half of the owner's slots (0: no bound) run heavy slices, so that what is quick finds a free one.
-- A repeated call with the same token (the reply was lost) returns the same slices again.
local queue, owner, n, lease, token = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local together = ARGV[6] or ''

local function describe(sid, s, fence)
  local v = redis.call('HMGET', K.job .. s.job, 'deadline', 'trace', 'slices', 'wait', 'tenant', 'made',
    'items', 'u', 'start')
  -- of a job whose caller waits for this slice alone: what the worker notifies the caller with
  local job_row = v[3] == '1' and v[4] and s.ph == 'work' and { v[5], v[6], v[7], v[8], v[9] } or {}
  return { sid, s.job, s.n, fence, s.kind, s.ph, redis.call('GET', K.payload .. sid) or '', s.seq,
    s.q, v[1] or '0', math.max(0, now - s.due), v[2] or '', job_row }
end

local given = redis.call('GET', K.claim .. token)
if given then
  local again = {}
  for sid in string.gmatch(given, '[^ ]+') do
    local s = read_slice(sid)
    if s and s.st == 'running' and redis.call('HGET', K.slice .. sid, 'own') == owner then
      again[#again + 1] = describe(sid, s, s.att)
    end
  end
  return again
end

local function take(sid)
  local s = read_slice(sid)
  if not s then return nil end
  local job = K.job .. s.job
  if s.ph == 'work' then
    local deadline = tonumber(redis.call('HGET', job, 'deadline')) or 0
    if deadline > 0 and deadline <= now then
      end_work(sid, s, 'expired', 0, s.items, 'deadline_expired', 'the deadline passed before it ran')
      forget(sid)
      return nil
    end
  end
  if redis.call('EXISTS', K.payload .. sid) == 0 then
    make_dead_letter(sid, s, 'ledger_unavailable', 'the payload is missing')
    return nil
  end
  if promised(s.kind) and not numbered(sid, s) then
    make_dead_letter(sid, s, 'record_corrupt', "the slice's sequence number is damaged")
    return nil
  end
  local fence = redis.call('HINCRBY', K.slice .. sid, 'att', 1)
  redis.call('HSET', K.slice .. sid, 'st', 'running', 'own', owner, 'lend', now + lease)
  redis.call('ZADD', K.leased .. s.q, now + lease, sid)
  if s.ph == 'work' then
    local v = redis.call('HMGET', job, 'st', 'att')
    if fence > tonumber(v[2]) then redis.call('HSET', job, 'att', fence) end
    if v[1] == 'queued' then
      redis.call('HSET', job, 'st', 'running')
      redis.call('HSETNX', job, 'start', now)
      emit(s.job)
    end
  end
  return describe(sid, s, fence)
end

local function joins(sid, leases)
  return together == '' or #leases == 0
    or (leases[1][5] == together and redis.call('HGET', K.slice .. sid, 'kind') == together)
end

local heavy_cost = queue == 'interactive' and P.heavy_cost or P.heavy_bulk_cost

local function heavy(sid)
  return (tonumber(redis.call('HGET', K.slice .. sid, 'cost')) or 0) > heavy_cost
end

-- The first slice of a lane that is not heavy, of the first few.
local function first_light(lane)
  for _, sid in ipairs(redis.call('ZRANGE', lane, 0, P.lane_looked_at - 1)) do
    if not heavy(sid) then return sid end
  end
end

-- How many heavy slices the owner may still take.
local function heavy_room(slots)
  if slots < 2 then return math.huge end
  local running = 0
  for _, sid in ipairs(redis.call('ZRANGE', K.leased .. queue, 0, -1)) do
    if redis.call('HGET', K.slice .. sid, 'own') == owner and heavy(sid) then running = running + 1 end
  end
  return math.floor(slots / 2) - running
end

mature(queue, P.mature)
local room, passed = nil, 0
local leases, names, budget = {}, {}, n + 64
while #leases < n and budget > 0 do
  budget = budget - 1
  local turn = redis.call('ZRANGE', K.turns .. queue, passed, passed, 'WITHSCORES')
  if #turn == 0 then break end
  local tenant, start = turn[1], tonumber(turn[2])
  local lane = K.lane .. queue .. ':' .. tenant
  local sid = redis.call('ZRANGE', lane, 0, 0)[1] or ''
  local is_heavy = heavy(sid)
  if is_heavy then room = room or heavy_room(tonumber(ARGV[7] or '0')) end
  if is_heavy and room <= 0 then
    sid = first_light(lane)
    is_heavy = false
  end
  if sid and not joins(sid, leases) then break end
  if not sid then
    passed = passed + 1 -- the next tenant's turn
  else
    local cost = tonumber(redis.call('HGET', K.slice .. sid, 'cost'))
    lane_remove(sid, { q = queue, tenant = tenant })
    local lease_row = take(sid)
    if lease_row then
      turn_over(queue, tenant, start, cost or string.len(lease_row[7]))
      leases[#leases + 1] = lease_row
      names[#names + 1] = sid
      if is_heavy then room = room - 1 end
    end
  end
end
if #names > 0 then redis.call('SET', K.claim .. token, table.concat(names, ' '), 'PX', lease) end
return leases
