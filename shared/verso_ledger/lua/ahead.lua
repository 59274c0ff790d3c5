-- Shows a job that is about to be accepted to the hand that would be given it, so that its work begins while
-- the server syncs the accept. Writes nothing. ARGV: job, queue, traceparent ('' none), payload.
-- Gives how many heard.
local queue = ARGV[2]
if tonumber(redis.call('HGET', K.load, queue .. ':slices') or 0) > 0 then return 0 end
local hand, till = unpack(redis.call('ZRANGE', K.line .. queue, 0, 0, 'WITHSCORES'))
if not hand or tonumber(till) <= now then return 0 end
local told = cjson.encode({ job = ARGV[1], trace = ARGV[3] }) .. '\n' .. ARGV[4]
return redis.call('PUBLISH', K.hand .. string.match(hand, '^[^|]+'), told)
