-- Returns the slices that have not ended: those that wait, run, or are dead letters. ARGV: queues.
local found = {}
local function add(rows)
  for _, sid in ipairs(rows) do found[#found + 1] = sid end
end
for _, queue in ipairs(ARGV) do
  add(redis.call('ZRANGE', K.ready .. queue, 0, -1))
  for _, tenant in ipairs(redis.call('ZRANGE', K.turns .. queue, 0, -1)) do
    add(redis.call('ZRANGE', K.lane .. queue .. ':' .. tenant, 0, -1))
  end
  add(redis.call('ZRANGE', K.leased .. queue, 0, -1))
end
add(redis.call('ZRANGE', K.dead, 0, -1))
return found
