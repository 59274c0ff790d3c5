-- Deletes lines of segments. ARGV: own name, uid, then for each segment: stream, first number, member, lines, bitmap
-- of the lines to delete (bit 0 of byte 0 is the first). A segment without a line left goes. Returns how many lines
-- were there; or moved, with nothing done, if one of the segments was replaced meanwhile.
if read_only() then return 'read_only' end
local uid, deleted = ARGV[2], 0
if redis.call('HGET', K.uids, ARGV[1]) ~= uid then return 0 end
for b = 3, #ARGV, 5 do
  if not redis.call('ZSCORE', K.segments .. uid, ARGV[b + 2]) then return 'moved' end
end
local function ones(byte)
  local count = 0
  while byte > 0 do
    count, byte = count + byte % 2, math.floor(byte / 2)
  end
  return count
end
for b = 3, #ARGV, 5 do
  local stream, first, mask = ARGV[b], ARGV[b + 1], ARGV[b + 4]
  local name = K.gone .. segment_name(uid, stream, first)
  local was = redis.call('GET', name) or ''
  local bytes, before, after = {}, 0, 0
  for i = 1, #mask do
    local old = string.byte(was, i) or 0
    local all = bit.bor(old, string.byte(mask, i))
    before, after = before + ones(old), after + ones(all)
    bytes[i] = string.char(all)
  end
  deleted = deleted + after - before
  if after == tonumber(ARGV[b + 3]) then
    take_segment(uid, stream, first, ARGV[b + 2])
    redis.call('HINCRBY', K.log .. uid, 'gone', -before)
    redis.call('HINCRBY', K.log .. uid, 'lines', -after)
  elseif after > before then
    redis.call('SET', name, table.concat(bytes))
    redis.call('HINCRBY', K.log .. uid, 'gone', after - before)
    redis.call('HINCRBY', K.log .. uid, 'r', 1) -- readers look at the bitmaps again
  end
end
return deleted
