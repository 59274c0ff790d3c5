-- Sets the counters of a log collection to what was counted, if no segment or bitmap was written or removed meanwhile.
-- ARGV: own name, uid, number of the newest segment, how often segments were removed, then name and number of each.
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
local uid = ARGV[2]
if lines_uid(ARGV[1]) ~= uid then return 'gone' end
local removed = tonumber(redis.call('HGET', K.log .. uid, 'r') or '0') or 0
if newest_segment(uid) ~= tonumber(ARGV[3]) or removed ~= tonumber(ARGV[4]) then return 'moved' end
redis.call('HSET', K.log .. uid, unpack(ARGV, 5))
return 'done'
