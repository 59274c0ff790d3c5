-- Writes a webhook. ARGV: tenant, id, webhook, what is stored now ('' nothing), most of one tenant.
-- Returns 1, or 0 if something else is stored or there are too many.
local stored = redis.call('HGET', K.webhooks .. ARGV[1], ARGV[2]) or ''
if stored == ARGV[3] then return 1 end
if stored ~= ARGV[4] then return 0 end
if stored == '' and redis.call('HLEN', K.webhooks .. ARGV[1]) >= tonumber(ARGV[5]) then return 0 end
redis.call('HSET', K.webhooks .. ARGV[1], ARGV[2], ARGV[3])
return 1
