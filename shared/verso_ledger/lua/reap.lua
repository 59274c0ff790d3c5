-- Takes back slices whose lease ran out, expires jobs, and tidies. ARGV: n, then the queues. Returns queue, due slices, ...
local n = tonumber(ARGV[1])
local counts = {}

-- Brings what waits for a time back by as much as the server's clock was set back: else a dead worker's lease ran on until
-- the clock is where it was. `from` is when this step last ran, and took all that was due by then; of times before it,
-- nobody knows by which clock they were noted.
local function follow_clock(from, last)
  local waiting = { K.deadlines, K.drop, K.gc, K.hooks, K.staged }
  for i = 2, #ARGV do
    waiting[#waiting + 1] = K.leased .. ARGV[i]
    waiting[#waiting + 1] = K.ready .. ARGV[i]
  end
  for _, name in ipairs(waiting) do
    local rows = redis.call('ZRANGEBYSCORE', name, '(' .. string.format('%.0f', from), '+inf', 'WITHSCORES')
    for i = 1, #rows, 2 do
      redis.call('ZADD', name, math.max(now, tonumber(rows[i + 1]) - last + now), rows[i])
    end
  end
end

local signs = redis.call('HGETALL', K.health)
local from, last = nil, now
for i = 1, #signs, 2 do
  local at = tonumber(signs[i + 1])
  last = math.max(last, at)
  if signs[i] == 'reap' then from = at end
end
local set_back = last - now > P.set_back_ms
if set_back then
  -- Earlier releases noted heartbeats only, and this step ran every second.
  follow_clock(from and from > now and from or last - 2000, last)
end
for i = 1, #signs, 2 do
  local at = tonumber(signs[i + 1])
  if set_back and at > now then
    redis.call('HSET', K.health, signs[i], now)
  elseif string.sub(signs[i], 1, 5) == 'beat:' and at < now - 3600000 then
    redis.call('HDEL', K.health, signs[i]) -- a worker that was killed did not sign off
  end
end
redis.call('HSET', K.health, 'reap', now)

for i = 2, #ARGV do
  local queue = ARGV[i]
  for _, sid in ipairs(redis.call('ZRANGEBYSCORE', K.leased .. queue, '-inf', now, 'LIMIT', 0, n)) do
    local s = read_slice(sid)
    redis.call('ZREM', K.leased .. queue, sid)
    if s and s.st == 'running' then
      local crashes = redis.call('HINCRBY', K.slice .. sid, 'crash', 1)
      redis.call('HINCRBY', K.totals, 'crashes', 1)
      if crashes >= P.max_crashes then
        make_dead_letter(sid, s, 'attempts_exhausted', 'the lease ran out ' .. crashes .. ' times')
      else
        make_ready(sid, s, P.backoff_ms[math.min(crashes, #P.backoff_ms)])
      end
    end
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', K.deadlines, '-inf', now, 'LIMIT', 0, n)) do
  local running = false
  for k = 0, (tonumber(redis.call('HGET', K.job .. id, 'slices')) or 0) - 1 do
    local sid = id .. '.' .. k
    local s = read_slice(sid)
    if s and s.ph == 'work' and s.st == 'queued' then
      unqueue(sid, s)
      end_work(sid, s, 'expired', 0, s.items, 'deadline_expired', 'the deadline passed before it ran')
      forget(sid)
    elseif s and s.ph == 'work' and s.st == 'running' then
      running = true
    end
  end
  if running then
    redis.call('ZADD', K.deadlines, now + 1000, id) -- look again when its lease has ended
  else
    redis.call('ZREM', K.deadlines, id)
  end
end

-- A tombstone is needed only while a write that is older than it can still arrive.
local oldest = redis.call('ZRANGE', K.pending, 0, 0, 'WITHSCORES')[2]
local bound = oldest and '(' .. oldest or '+inf'
for _, uid in ipairs(redis.call('HVALS', K.uids)) do
  redis.call('ZREMRANGEBYSCORE', K.tombs .. uid, '-inf', bound)
end
-- Dead letters that promised nothing expire by themselves; their names go with them.
for _, sid in ipairs(redis.call('ZRANGEBYSCORE', K.dead, '-inf', now - P.dead_keep_s * 1000, 'LIMIT', 0, n)) do
  if redis.call('EXISTS', K.slice .. sid) == 0 then redis.call('ZREM', K.dead, sid) end
end

end_reservations(n)
redis.call('ZREMRANGEBYSCORE', K.hookdead, '-inf', now - P.dead_keep_s * 1000)

-- The lists of jobs: a page of each tenant's at a time loses what has expired.
for _, tenant in ipairs(redis.call('SMEMBERS', K.tenants)) do
  local from = redis.call('HGET', K.walk, tenant) or '0'
  local page = redis.call('ZRANGEBYSCORE', K.jobs .. tenant, '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, n)
  for i = 1, #page, 2 do
    if redis.call('EXISTS', K.job .. page[i]) == 0 then redis.call('ZREM', K.jobs .. tenant, page[i]) end
  end
  redis.call('HSET', K.walk, tenant, #page < 2 * n and '0' or page[#page])
end

for i = 2, #ARGV do
  mature(ARGV[i], n)
  counts[#counts + 1] = ARGV[i]
  counts[#counts + 1] = count_due(ARGV[i])
end
return counts
