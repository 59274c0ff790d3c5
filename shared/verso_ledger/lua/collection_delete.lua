-- Makes a collection, all its documents and what a migration of it has made or left invisible at once;
-- drop.lua sweeps their keys, and their vectors are garbage from now on.
-- ARGV: own name, uid that the caller means, buckets, number of the slice that asks (0 none). Returns the
-- own names whose vectors may go. Refused while a backup copies its points.
if redis.call('EXISTS', K.frozen) == 1 then return 'frozen' end
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
local own, uid, by = ARGV[1], ARGV[2], tonumber(ARGV[4])
if redis.call('HGET', K.uids, own) ~= uid then return {} end
if by > 0 and by < tonumber(uid) then return 'younger' end
local name, gone = user_name(own), { own }
local migration = redis.call('HGET', K.migrations, name)
if migration then
  local state = cjson.decode(migration)
  for _, side in ipairs({ state.source, state.target }) do
    if side ~= own then
      raze(side, state.buckets)
      gone[#gone + 1] = side
    end
  end
  redis.call('HDEL', K.migrations, name)
end
raze(own, ARGV[3])
-- Kept for as long as a worker may still be about to drop vectors of this own name.
redis.call('SET', K.razed .. name, uid .. ' ' .. ARGV[4], 'EX', P.dead_keep_s)
return gone
