-- Returns those of some slices that have not ended, each with 1 if it is a dead letter. ARGV: slices.
local found = {}
for _, sid in ipairs(ARGV) do
  local s = read_slice(sid)
  local dead = redis.call('ZSCORE', K.dead, sid)
  if dead or s and s.q and (redis.call('ZSCORE', K.ready .. s.q, sid) or redis.call('ZSCORE', lane_of(s), sid)
    or redis.call('ZSCORE', K.leased .. s.q, sid)) then
    found[#found + 1] = sid
    found[#found + 1] = dead and 1 or 0
  end
end
return found
