-- Counts each queue. ARGV: queues. Gives rows of queue, due, waiting in all, running, age in ms of
-- what has been due longest.
local rows = {}
for i, queue in ipairs(ARGV) do
  local first = redis.call('ZRANGE', K.ready .. queue, 0, 0, 'WITHSCORES')[2]
  rows[i] = { queue, redis.call('ZCOUNT', K.ready .. queue, '-inf', now),
    redis.call('ZCARD', K.ready .. queue), redis.call('ZCARD', K.leased .. queue),
    first and math.max(0, now - tonumber(first)) or 0 }
end
return rows
