-- Reserves numbers for lines of a stream, which is made if it is new. ARGV: collection as users know it, labels as
-- JSON with sorted keys, lines, most streams, when the collection was made ('' not known). Returns the uid of its
-- lines, the stream and the first number; or why not.
-- A stream is stored as a check of all that follows and of the labels, its number, and that of its next line. A line
-- that got a number twice would be lost, so a flipped bit of it is corrected first. Streams of a partition by time are
-- numbered from its own number times P.streams on, so that a line's number is of one partition.
if read_only() then return 'read_only' end
if replaced(ARGV[1], ARGV[5]) then return 'replaced' end
if shut('n:' .. ARGV[1], true) then return 'moving' end
if has_rolled(ARGV[1]) then return 'rolled' end
local own = redis.call('HGET', K.aliases, ARGV[1]) or ARGV[1]
local uid = lines_uid(own)
if not uid then return 'unknown' end
local streams, labels = K.streams .. uid, ARGV[2]

local function stored(row) return string.sub(redis.sha1hex(labels .. ' ' .. row), 1, 8) .. ' ' .. row end

local function read(value)
  local row = string.match(value, '^%x+ (%d+ %d+)$')
  if row and stored(row) == value then return string.match(row, '^(%d+) (%d+)$') end
end

local function corrected(value)
  for i = 1, #value do
    for bit_number = 0, 7 do
      local byte = string.char(bit.bxor(string.byte(value, i), 2 ^ bit_number))
      local stream, first = read(string.sub(value, 1, i - 1) .. byte .. string.sub(value, i + 1))
      if stream then return stream, first end
    end
  end
end

local found = redis.call('HGET', streams, labels)
local number = tonumber(string.match(ARGV[1], '%.(%d+)$') or 0)
local stream, first = redis.call('HLEN', streams) + number * P.streams, 0
if found then
  stream, first = read(found)
  if not stream then stream, first = corrected(found) end
  if not stream then return 'damaged' end
  stream, first = tonumber(stream), tonumber(first)
elseif stream - number * P.streams >= tonumber(ARGV[4]) then
  return 'crowded'
end
redis.call('HSET', streams, labels, stored(string.format('%.0f %.0f', stream, first + tonumber(ARGV[3]))))
return { uid, stream, string.format('%.0f', first) }
