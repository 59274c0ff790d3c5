-- Stores the tables of a generation, unless there are some. ARGV: own name, uid, generation, tables. Returns what is stored.
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
if lines_uid(ARGV[1]) ~= ARGV[2] then return 'gone' end
redis.call('HSETNX', K.fitted .. ARGV[2], ARGV[3], ARGV[4])
return redis.call('HGET', K.fitted .. ARGV[2], ARGV[3])
