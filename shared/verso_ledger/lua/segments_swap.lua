-- Replaces segments by others with the same lines, if neither they nor their bitmaps have changed. ARGV: own name,
-- uid, count of old ones, count of new ones, four of has_basis; for each old one: stream, first number, member, bitmap ('' none);
-- for each new one: stream, first number, member, data, bitmap ('' none). Returns whether they were replaced.
if read_only() then return 'read_only' end
if shut('o:' .. ARGV[1], true) then return 'busy' end
local uid, old, new = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if lines_uid(ARGV[1]) ~= uid then return 'gone' end
if not has_basis(uid, 5) then return 'behind' end
for i = 0, old - 1 do
  local b = 9 + i * 4
  local gone = redis.call('GET', K.gone .. segment_name(uid, ARGV[b], ARGV[b + 1])) or ''
  if gone ~= ARGV[b + 3] or not redis.call('ZSCORE', K.segments .. uid, ARGV[b + 2]) then return 'moved' end
end
for i = 0, old - 1 do
  local b = 9 + i * 4
  take_segment(uid, ARGV[b], ARGV[b + 1], ARGV[b + 2])
end
for i = 0, new - 1 do
  local b = 9 + old * 4 + i * 5
  put_segment(uid, ARGV[b], ARGV[b + 1], ARGV[b + 2], ARGV[b + 3])
  if ARGV[b + 4] ~= '' then
    redis.call('SET', K.gone .. segment_name(uid, ARGV[b], ARGV[b + 1]), ARGV[b + 4])
    log_add(uid, 'masks', 1)
  end
end
return 'done'
