-- Counts each queue. ARGV: queues. Returns rows of queue, due, waiting in all, running, age in ms of
-- the slice that has been due longest.
local rows = {}
for i, queue in ipairs(ARGV) do
  local oldest = now
  local waits = redis.call('ZRANGE', K.ready .. queue, 0, 0, 'WITHSCORES')[2]
  if waits then oldest = math.min(oldest, tonumber(waits)) end
  for _, tenant in ipairs(redis.call('ZRANGE', K.turns .. queue, 0, -1)) do
    local lane, from = K.lane .. queue .. ':' .. tenant, '-inf'
    repeat -- the first of each urgency is the oldest of it
      local head = redis.call('ZRANGEBYSCORE', lane, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      if head[1] then
        oldest = math.min(oldest, tonumber(redis.call('HGET', K.slice .. head[1], 'due')) or now)
        from = (math.floor(tonumber(head[2]) / URGENCY) + 1) * URGENCY
      end
    until not head[1]
  end
  local due = count_due(queue)
  rows[i] = { queue, due, due + redis.call('ZCOUNT', K.ready .. queue, '(' .. now, '+inf'),
    redis.call('ZCARD', K.leased .. queue), now - oldest }
end
return rows
