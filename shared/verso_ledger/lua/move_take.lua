-- Lets a caller copy a collection to this ledger, and those before it no more. ARGV: own name, collection as users
-- know it, number of the caller (each has a greater one than those before), newest sequence number of the ledger that
-- has it. Returns the uid that its keys are copied under; or there, if this ledger has it; or why not.
--
-- Slices that are accepted here once it has moved come after all that were accepted there.
if read_only() then return 'read_only' end
local own, name, number = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('HEXISTS', K.uids, own) == 1 then return 'there' end
if redis.call('HEXISTS', K.collections, redis.call('HGET', K.aliases, name) or name) == 1 then return 'taken' end
local uid, before, serial = string.match(redis.call('HGET', K.receiving, own) or '', '^(%d+) (%d+) (%d+)$')
if uid and tonumber(before) > number then return 'stale' end
if (tonumber(redis.call('GET', K.seq)) or 0) < tonumber(ARGV[4]) then redis.call('SET', K.seq, ARGV[4]) end
uid = uid or string.format('%.0f', redis.call('INCR', K.seq))
if not before or tonumber(before) < number then serial = '0' end
redis.call('HSET', K.receiving, own, uid .. ' ' .. ARGV[3] .. ' ' .. serial)
return uid
