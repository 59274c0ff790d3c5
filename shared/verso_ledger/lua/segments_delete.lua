-- Deletes lines of segments. ARGV: own name, uid, then for each segment: stream, first number, member, lines, bitmap
-- of its deleted lines as the caller knows it ('' none), the bitmap that replaces it, how many lines the two name, bytes of
-- the text of the lines that go.
-- A segment without a line left goes. Returns how many lines were deleted; or moved, with nothing done, if a segment
-- or a bitmap was replaced meanwhile.
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
local uid, deleted = ARGV[2], 0
if lines_uid(ARGV[1]) ~= uid then return 0 end
for b = 3, #ARGV, 9 do
  local gone = redis.call('GET', K.gone .. segment_name(uid, ARGV[b], ARGV[b + 1])) or ''
  if gone ~= ARGV[b + 4] or not redis.call('ZSCORE', K.segments .. uid, ARGV[b + 2]) then return 'moved' end
end
for b = 3, #ARGV, 9 do
  local stream, first, before, after = ARGV[b], ARGV[b + 1], tonumber(ARGV[b + 6]), tonumber(ARGV[b + 7])
  deleted = deleted + after - before
  log_less(uid, 'text', tonumber(ARGV[b + 8]))
  log_less(uid, 'verified', after - before)
  if after == tonumber(ARGV[b + 3]) then
    take_segment(uid, stream, first, ARGV[b + 2])
    log_add(uid, 'gone', -before)
    log_add(uid, 'lines', -after)
  elseif after > before then
    touch(uid, 's:' .. stream .. ':' .. first)
    redis.call('SET', K.gone .. segment_name(uid, stream, first), ARGV[b + 5])
    if ARGV[b + 4] == '' then log_add(uid, 'masks', 1) end
    log_add(uid, 'gone', after - before)
    log_add(uid, 'r', 1) -- readers look at the bitmaps again
  end
end
return deleted
