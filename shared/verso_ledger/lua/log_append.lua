-- Appends to a list of a log collection, if it is still as long as the writer knows it. ARGV: own name, uid, kind of key,
-- known length, how its last element ends ('' whatever it is), then the elements. Returns whether they were appended.
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
if lines_uid(ARGV[1]) ~= ARGV[2] then return 'gone' end
local name = K.shapes .. ARGV[2]
if ARGV[3] == 'statements' then name = K.statements .. redis.call('HGET', K.uids, ARGV[1]) end
if redis.call('LLEN', name) ~= tonumber(ARGV[4]) then return 'behind' end
if not ends_with(redis.call('LINDEX', name, -1), ARGV[5]) then return 'behind' end
for i = 6, #ARGV do redis.call('RPUSH', name, ARGV[i]) end
return 'done'
