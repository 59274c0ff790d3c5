-- Writes keys of a collection that is copied to this ledger, if the caller is the one that may. ARGV: own name, uid,
-- number of the caller, number of the call (each has a greater one than those before), then for each key: its name, for how long in ms (0 always), what DUMP gave ('' removes it).
-- Returns done, or stale.
if read_only() then return 'stale' end
local uid, number, last = string.match(redis.call('HGET', K.receiving, ARGV[1]) or '', '^(%d+) (%d+) (%d+)$')
if uid ~= ARGV[2] or number ~= ARGV[3] then return 'stale' end
-- A call that was repeated as its reply was late, and comes once more later, must not undo what came between.
local serial = tonumber(ARGV[4])
if serial < tonumber(last) then return 'stale' end
if serial == tonumber(last) then return 'done' end
redis.call('HSET', K.receiving, ARGV[1], uid .. ' ' .. number .. ' ' .. ARGV[4])
for i = 5, #ARGV, 3 do
  if ARGV[i + 2] == '' then
    redis.call('UNLINK', ARGV[i])
  else
    redis.call('RESTORE', ARGV[i], ARGV[i + 1], ARGV[i + 2], 'REPLACE')
  end
end
return 'done'
