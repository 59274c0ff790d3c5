-- Keeps points from being removed for a while, for a backup that copies them. ARGV: owner; ms, 0 to end it;
-- 1 to hold it only if it has not lapsed since. Returns 1 where that was done.
local holder = redis.call('GET', K.frozen)
if holder and holder ~= ARGV[1] then return 0 end
if not holder and ARGV[3] == '1' then return 0 end
if ARGV[2] == '0' then
  redis.call('DEL', K.frozen)
else
  redis.call('SET', K.frozen, ARGV[1], 'PX', ARGV[2])
end
return 1
