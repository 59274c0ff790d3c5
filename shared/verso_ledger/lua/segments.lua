-- Segments of lines. Stands before every script, behind the entries.

-- The uid of the lines of a collection by its own name; nil if it is gone.
local function lines_uid(own) return born(redis.call('HGET', K.uids, own)) end

-- Whether a collection, by the name that users know, is a partition by time that takes no more lines: those that were
-- accepted before are stored. Only names of partitions have a dot.
local function has_rolled(name)
  if not string.find(name, '.', 1, true) then return false end
  local uid = lines_uid(redis.call('HGET', K.aliases, name) or name)
  return uid and redis.call('HEXISTS', K.log .. uid, 'rolled') == 1
end

local function segment_name(uid, stream, first) return uid .. ':' .. stream .. ':' .. first end

-- Adds to a counter of a log collection. A damaged one starts at zero, and the scrub counts again.
local function log_add(uid, field, by)
  by = tonumber(by) + 0 -- -0 + 0 is 0: '-0' is no integer to HINCRBY
  local reply = redis.pcall('HINCRBY', K.log .. uid, field, by)
  if type(reply) == 'table' then redis.call('HSET', K.log .. uid, field, by) end
end

-- Takes from a counter as much as it has: one of an earlier version counted otherwise.
local function log_less(uid, field, by)
  log_add(uid, field, -math.min(by, tonumber(redis.call('HGET', K.log .. uid, field) or 0) or 0))
end

-- Bytes of a segment's blocks that are in cold storage, by its first bytes; 0 of one that has them itself.
local function cold_size(data)
  if not data or #data < 5 or string.byte(data, 1) ~= 2 then return 0 end
  return struct.unpack('<I4', data, 2) % 0x80000000 -- the highest bit says how the object is named
end

-- Number of the newest segment; 0 without one. Where it is removed the counter `r` says so.
local function newest_segment(uid)
  return tonumber(redis.call('ZREVRANGE', K.segments .. uid, 0, 0, 'WITHSCORES')[2] or 0)
end

-- Writes one segment. `member` describes it in the list of segments; see verso_ledger.collections.logs.
local function put_segment(uid, stream, first, member, data)
  redis.call('SET', K.segment .. segment_name(uid, stream, first), data)
  touch(uid, 's:' .. stream .. ':' .. first)
  redis.call('ZADD', K.segments .. uid, newest_segment(uid) + 1, member)
  log_add(uid, 'bytes', #data)
  if cold_size(data) > 0 then log_add(uid, 'cold', cold_size(data)) end
end

local function take_segment(uid, stream, first, member)
  local name = K.segment .. segment_name(uid, stream, first)
  log_add(uid, 'bytes', -redis.call('STRLEN', name))
  log_less(uid, 'cold', cold_size(redis.call('GETRANGE', name, 0, 4)))
  log_add(uid, 'masks', -redis.call('EXISTS', K.gone .. segment_name(uid, stream, first)))
  redis.call('UNLINK', name, K.gone .. segment_name(uid, stream, first))
  touch(uid, 's:' .. stream .. ':' .. first)
  redis.call('ZREM', K.segments .. uid, member)
  log_add(uid, 'r', 1)
end

-- Whether the last bytes of a value are these, those of a CRC; '' is no condition.
local function ends_with(value, last) return last == '' or string.sub(value or '', -#last) == last end

-- Whether a collection has what blocks were coded by. ARGV from `at` on: how many elements its list of shapes had, how
-- the last of them ends, generation of the tables ('0': none are needed), how they end. A ledger that went back, as a
-- replica that took over may, has not what a worker knows that read it before.
local function has_basis(uid, at)
  local n = tonumber(ARGV[at])
  if n > 0 and not ends_with(redis.call('LINDEX', K.shapes .. uid, n - 1), ARGV[at + 1]) then return false end
  return ARGV[at + 2] == '0' or ends_with(redis.call('HGET', K.fitted .. uid, ARGV[at + 2]), ARGV[at + 3])
end

-- Writes the segments of a slice: own name, uid, four of has_basis, then for each: stream, first number, member, lines,
-- bytes of text, data. What was asked of a collection that is gone, or of an earlier one of its name, is dropped.
local function put_segments(at, count)
  local uid = ARGV[at + 2]
  if lines_uid(ARGV[at + 1]) ~= uid then return end
  for i = 0, count - 1 do
    local b = at + 7 + i * 6
    put_segment(uid, ARGV[b], ARGV[b + 1], ARGV[b + 2], ARGV[b + 5])
    log_add(uid, 'lines', ARGV[b + 3])
    log_add(uid, 'text', ARGV[b + 4])
  end
end

-- Lists a span of time for which a collection has identities or positions, before the first of them is written; spans
-- that have expired leave the list. The keys of those that an earlier version wrote are found by a look through all keys,
-- for as long as there may be any.
local function list_span(uid, kind, period)
  local name, span = K.spans .. uid, kind .. ':' .. period
  if redis.call('SISMEMBER', name, span) == 1 then return end
  for _, old in ipairs(redis.call('SMEMBERS', name)) do
    local its_kind, its_period = string.match(old, '^(%a+):(%d+)$')
    if redis.call('EXISTS', K[its_kind] .. uid .. ':' .. its_period) == 0 then redis.call('SREM', name, old) end
  end
  redis.call('SADD', name, span)
  redis.call('HSETNX', K.totals, 'spans_since', now)
end

-- Notes an identity or the position of a source that is new, where the collection is being copied to another ledger. If
-- nobody copies them for so long that they are many, it notes only that all must be copied again.
local function note_new(uid, span, member)
  local name = K.fresh .. uid
  if not follows(uid) or redis.call('ZSCORE', name, 'all') then return end
  if redis.call('ZCARD', name) < P.max_fresh then
    redis.call('ZADD', name, new_mark(), span .. ' ' .. member)
  else
    redis.call('UNLINK', name)
    redis.call('ZADD', name, new_mark(), 'all')
  end
end

-- Hashes of identities of log records, as ARGV lists them from `at` on: seconds that they are remembered, count of
-- collections; for each: name as users know it, count, hashes. Calls `f` with the sets of the collection, this
-- period's and the one before, and each hash. A collection that is not there has none.
local function each_identity(at, f)
  local period_s = tonumber(ARGV[at])
  local period = math.floor(now / 1000 / period_s)
  local n = at + 2
  for _ = 1, tonumber(ARGV[at + 1]) do
    local uid = redis.call('HGET', K.uids, redis.call('HGET', K.aliases, ARGV[n]) or ARGV[n])
    uid = uid and string.match(uid, '^%d+') -- the same on both sides of a migration
    local sets = uid and {
      K.identities .. uid .. ':' .. period, K.identities .. uid .. ':' .. (period - 1), 2 * period_s,
      uid = uid, period = period,
    }
    for i = n + 2, n + 1 + tonumber(ARGV[n + 1]) do f(sets, ARGV[i]) end
    n = n + 2 + tonumber(ARGV[n + 1])
  end
end

local function is_known(sets, hash)
  return sets and (redis.call('SISMEMBER', sets[1], hash) == 1 or redis.call('SISMEMBER', sets[2], hash) == 1)
end

local function remember(sets, hash)
  if not sets then return end
  if not sets.listed then list_span(sets.uid, 'identities', sets.period) end
  sets.listed = true
  if redis.call('SADD', sets[1], hash) == 0 then return end
  if redis.call('TTL', sets[1]) < 0 then redis.call('EXPIRE', sets[1], sets[3]) end
  note_new(sets.uid, 'identities:' .. sets.period, hash)
end

-- Where a source of lines stands: in this period's hash, or the one before. A hash goes a period after its end.
local function source_position(uid, source)
  local period = math.floor(now / 1000 / P.position_s)
  local name = K.positions .. uid .. ':' .. period
  local at = redis.call('HGET', name, source)
    or redis.call('HGET', K.positions .. uid .. ':' .. (period - 1), source)
  local function move(to)
    list_span(uid, 'positions', period)
    redis.call('HSET', name, source, to)
    note_new(uid, 'positions:' .. period, source)
    if redis.call('TTL', name) < 0 then redis.call('EXPIRE', name, 2 * P.position_s) end
  end
  return { at = at, move = move }
end

local arrived = {}

-- Lists a slice of lines behind those that were accepted before: its place there is the number of its first line,
-- from 1 on. Lines of a collection that is gone are not listed.
local function note_arrival(uid, sid, lines)
  if redis.call('EXISTS', K.streams .. uid) == 0 then return end
  local name, first = K.arrivals .. uid, 1
  local newest = redis.call('XREVRANGE', name, '+', '-', 'COUNT', 1)[1]
  if newest then first = tonumber(string.match(newest[1], '^%d+')) + tonumber(newest[2][4]) end
  redis.call('XADD', name, 'MAXLEN', '~', P.max_arrivals, string.format('%.0f-0', first), 'slice', sid, 'lines', lines)
  arrived[uid] = true
end

-- Publishes that lines were accepted, as the event of a job that never ends.
local function announce_arrivals()
  for uid in pairs(arrived) do redis.call('PUBLISH', K.news, 'lines:' .. uid .. ' queued') end
end

-- Whether a deleted collection has more segments than this step has swept. Lines that another side of a migration has
-- stay.
local function sweep_segments(own_uid, n)
  local uid = born(own_uid)
  redis.call('UNLINK', K.statements .. own_uid)
  for _, other in ipairs(redis.call('HVALS', K.uids)) do
    if born(other) == uid then return false end
  end
  local members = redis.call('ZRANGE', K.segments .. uid, 0, n - 1)
  for _, member in ipairs(members) do
    local stream, first = struct.unpack('>I4I8', member)
    local name = segment_name(uid, string.format('%.0f', stream), string.format('%.0f', first))
    redis.call('UNLINK', K.segment .. name, K.gone .. name)
    redis.call('ZREM', K.segments .. uid, member)
  end
  if #members == n then return true end
  redis.call('UNLINK', K.log .. uid, K.streams .. uid, K.shapes .. uid, K.fitted .. uid, K.arrivals .. uid,
    K.spans .. uid)
  return false
end
