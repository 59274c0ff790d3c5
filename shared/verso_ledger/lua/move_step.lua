-- Takes a move on at the ledger that has the collection, if it still stands where the caller saw it. ARGV: collection
-- as users know it, state seen, new state ('' forgets it), own name, uid, what goes with it, then for how long in ms
-- or to which ledger, then counters and by how much they grow, in turn. What goes with it:
--   none    nothing
--   fence   no write is accepted any more, for so long
--   close   nor is one committed, if the fence has held until now: no write was accepted since it began
--   open    all is accepted again, unless the collection has moved
--   switch  this ledger has the collection no more, if it was closed until now and no backup is taken
--   back    it has it again, as the other ledger has lost the copy
--   clean   its keys go, if no backup is taken; its vectors stay, as they are the other ledger's
--   forget  as if there had been no move
-- Returns 1 if this call took it on.
local name, own, uid, what = ARGV[1], ARGV[4], ARGV[5], ARGV[6]
local of_name, of_own = 'n:' .. name, 'o:' .. own
if redis.call('HGET', K.moves, name) ~= ARGV[2] then return 0 end
local state = redis.call('HGET', K.shut, of_name)
local stage, till = string.match(state or '', '^(%a) (%d+)$')
local holds = stage ~= nil and tonumber(till) > now
local has_moved = state and not stage

local function follow_no_more()
  redis.call('SREM', K.tracked, born(uid))
  redis.call('UNLINK', K.marks .. born(uid), K.fresh .. born(uid))
end

if what ~= 'none' and what ~= 'open' and what ~= 'forget' and read_only() then return 0 end
if what == 'fence' then
  if has_moved or redis.call('HGET', K.uids, own) ~= uid or migrating(name) then return 0 end
  redis.call('HSET', K.shut, of_name, 'f ' .. string.format('%.0f', now + ARGV[7]))
elseif what == 'close' then
  if not holds or redis.call('HGET', K.uids, own) ~= uid then return 0 end
  local closed = 'c ' .. string.format('%.0f', now + ARGV[7])
  redis.call('HSET', K.shut, of_name, closed, of_own, closed)
elseif what == 'open' or what == 'forget' then
  if has_moved then return 0 end
  redis.call('HDEL', K.shut, of_name, of_own)
  if what == 'forget' then follow_no_more() end
elseif what == 'switch' then
  -- What was accepted or stored past its time has removed its half of the close (see shut).
  if stage ~= 'c' or not holds or redis.call('HGET', K.shut, of_own) ~= state then return 0 end
  if redis.call('EXISTS', K.frozen) == 1 then return 0 end
  redis.call('HSET', K.shut, of_name, ARGV[7], of_own, ARGV[7])
  follow_no_more()
elseif what == 'back' then
  if not has_moved or redis.call('HGET', K.uids, own) ~= uid then return 0 end
  redis.call('HDEL', K.shut, of_name, of_own)
  redis.call('SADD', K.tracked, born(uid))
elseif what == 'clean' then
  if not has_moved or redis.call('EXISTS', K.frozen) == 1 then return 0 end
  if redis.call('HGET', K.uids, own) == uid then
    -- A late commit is not taken for one to a collection that was deleted: it is refused.
    redis.call('SADD', K.sealed, 'gone:' .. own)
    local buckets = cjson.decode(redis.call('HGET', K.collections, own)).buckets
    take_away(own, uid, buckets)
    -- The own name is in use elsewhere: it is given to no other collection here.
    redis.call('SET', K.razed .. name, uid .. ' 0')
    redis.call('HDEL', K.migrations, name)
  end
end
for i = 8, #ARGV, 2 do redis.call('HINCRBY', K.totals, ARGV[i], ARGV[i + 1]) end
if ARGV[3] == '' then
  redis.call('HDEL', K.moves, name)
else
  redis.call('HSET', K.moves, name, ARGV[3])
end
return 1
