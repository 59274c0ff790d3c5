-- Extends leases. ARGV: lease in ms, then pairs of slice and fence. Returns the slices that are lost.
local lost = {}
for i = 2, #ARGV, 2 do
  local s = held(ARGV[i], ARGV[i + 1])
  if s then
    redis.call('HSET', K.slice .. ARGV[i], 'lend', now + tonumber(ARGV[1]))
    redis.call('ZADD', K.leased .. s.q, now + tonumber(ARGV[1]), ARGV[i])
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
