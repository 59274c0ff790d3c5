-- Leases due slices of a queue to a worker. ARGV: queue, owner, n, lease in ms, token, kind, slots, kept.
-- More than one slice is leased only where all are of that kind ('' any), which the worker runs as one.
-- So many of the owner's slots are kept for urgent slices: a person does not wait for bulk work of the same key.
-- At most half of the others (0: no bound) run heavy slices, so that what is quick finds a free one.
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
  for sid, fence in string.gmatch(given, '([^ =]+)=(%d+)') do
    local s = held(sid, fence) -- not a later claim's: the lease and this token may end in the same millisecond
    if s and redis.call('HGET', K.slice .. sid, 'own') == owner then
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
local kept = tonumber(ARGV[8] or '0')
local usual_slots = tonumber(ARGV[7] or '0') - kept

-- What of a slice decides in which slots it may run.
local function weighed(sid)
  local v = redis.call('HMGET', K.slice .. sid, 'cost', 'u', 'own')
  return { own = v[3], heavy = (tonumber(v[1]) or 0) > heavy_cost,
    urgent = (tonumber(v[2]) or P.usual_urgency) < P.usual_urgency }
end

-- How many slices the owner may still take: usual ones, heavy ones among these, and heavy urgent ones.
local function find_room()
  local half = usual_slots >= 2 and math.floor(usual_slots / 2) or (kept > 0 and 1 or math.huge)
  local left = { usual = kept > 0 and usual_slots or math.huge, heavy = half, urgent = half + kept }
  for _, sid in ipairs(redis.call('ZRANGE', K.leased .. queue, 0, -1)) do
    local s = weighed(sid)
    if s.own == owner then
      if not s.urgent then left.usual = left.usual - 1 end
      if s.heavy then left.heavy, left.urgent = left.heavy - 1, left.urgent - 1 end
    end
  end
  return left
end

local room
-- Whether a slot may run the slice; what the owner runs is looked up where it matters.
local function fits(s)
  if not s.heavy and (s.urgent or kept == 0) then return true end
  room = room or find_room()
  if s.heavy and room[s.urgent and 'urgent' or 'heavy'] <= 0 then return false end
  return s.urgent or room.usual > 0
end

local function note_taken(s)
  if not room then return end
  if not s.urgent then room.usual = room.usual - 1 end
  if s.heavy then room.heavy, room.urgent = room.heavy - 1, room.urgent - 1 end
end

-- The first slice of a lane that may run, of the first few, and what was weighed of it.
local function first_of(lane)
  for at = 0, P.lane_looked_at - 1 do
    local sid = redis.call('ZRANGE', lane, at, at)[1]
    if not sid then return nil end
    local s = weighed(sid)
    if fits(s) then return sid, s end
    if not s.urgent and room.usual <= 0 then return nil end -- those behind it are no more urgent
  end
end

mature(queue, P.mature)
local passed = 0
local leases, names, budget = {}, {}, n + 64
while #leases < n and budget > 0 do
  budget = budget - 1
  local turn = redis.call('ZRANGE', K.turns .. queue, passed, passed, 'WITHSCORES')
  if #turn == 0 then break end
  local tenant, start = turn[1], tonumber(turn[2])
  local lane = K.lane .. queue .. ':' .. tenant
  local sid, slice = first_of(lane)
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
      names[#names + 1] = sid .. '=' .. lease_row[4]
      note_taken(slice)
    end
  end
end
if #names > 0 then redis.call('SET', K.claim .. token, table.concat(names, ' '), 'PX', lease) end
return leases
