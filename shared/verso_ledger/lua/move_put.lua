-- Writes to a collection that is copied to this ledger, if the caller is the one that may. ARGV: own name, uid, number
-- of the caller, number of the call (each has a greater one than those before), then the commands: name, how many
-- arguments it has, and they. Returns done, or stale.
if read_only() then return 'stale' end
local uid, number, last = string.match(redis.call('HGET', K.receiving, ARGV[1]) or '', '^(%d+) (%d+) (%d+)$')
if uid ~= ARGV[2] or number ~= ARGV[3] then return 'stale' end
-- A call that was repeated as its reply was late, and comes once more later, must not undo what came between.
local serial = tonumber(ARGV[4])
if serial < tonumber(last) then return 'stale' end
if serial == tonumber(last) then return 'done' end
redis.call('HSET', K.receiving, ARGV[1], uid .. ' ' .. number .. ' ' .. ARGV[4])
local at = 5
while at <= #ARGV do
  local last_at = at + 1 + tonumber(ARGV[at + 1])
  redis.call(ARGV[at], unpack(ARGV, at + 2, last_at))
  at = last_at + 1
end
return 'done'
