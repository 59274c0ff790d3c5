-- Notes points that no entry names, and gives those that may go. ARGV: collection, least age in ms of
-- the pass before, most noted; then the points. What no ledger names is noted with the newest sequence
-- number. It may go when every slice that could have put it had ended before the last whole pass
-- began: that pass has struck off all that its entries name, and no other entry can name it any more.
local uid = redis.call('HGET', K.uids, ARGV[1])
if not uid or read_only() or redis.call('EXISTS', K.frozen) == 1 then return {} end
for _, text in ipairs(redis.call('HVALS', K.migrations)) do
  local one = cjson.decode(text)
  if one.stage ~= 'done' and (one.source == ARGV[1] or one.target == ARGV[1]) then return {} end
end
local v = redis.call('HMGET', K.scrub, 'prior', 'prior_floor')
local prior, floor = tonumber(v[1]), tonumber(v[2])
local settled = prior and floor and now - prior >= tonumber(ARGV[2])
local seq, room = tonumber(redis.call('GET', K.seq)) or 0, tonumber(ARGV[3]) - redis.call('ZCARD', K.orphans)
local due = {}
for i = 4, #ARGV do
  local seen = redis.call('ZSCORE', K.orphans, uid .. ':' .. ARGV[i])
  if not seen then
    if room > 0 then redis.call('ZADD', K.orphans, seq, uid .. ':' .. ARGV[i]) end
    room = room - 1
  elseif settled and tonumber(seen) < floor then
    due[#due + 1] = ARGV[i]
  end
end
return due
