-- Entries, collections, and what is counted of them. Stands before every script, behind the prelude.

-- Entries: version and flags in byte 1, sequence number big endian in bytes 2 to 7. One that was cut
-- short reads as an old one: damage must not keep a later write of the document out.
local LONG, VERIFIED = 8, 16

-- Both sides of a migration have the same lines: their keys are named by the part of the uid that both have. Vectors of
-- statements are of one side, and are named by its whole uid.
local function born(uid) return uid and string.match(uid, '^%d+') end

local followed = {} -- uid -> whether its changes are noted
-- Whether a collection is being copied to another ledger.
local function follows(uid)
  if followed[uid] == nil then followed[uid] = redis.call('SISMEMBER', K.tracked, uid) == 1 end
  return followed[uid]
end

local mark
-- The number of what this step changes: greater than those of all steps before.
local function new_mark()
  mark = mark or redis.call('HINCRBY', K.totals, 'marks', 1)
  return mark
end

-- Notes that a bucket (d:bucket) or a segment (s:stream:first) of a collection has changed, where the collection is
-- being copied to another ledger.
local function touch(uid, unit)
  uid = born(uid)
  if follows(uid) then redis.call('ZADD', K.marks .. uid, new_mark(), unit) end
end

local function entry_seq(entry)
  local seq = 0
  for i = 2, 7 do seq = seq * 256 + (string.byte(entry, i) or 0) end
  return seq
end

local function has_flag(entry, flag)
  return bit.band(string.byte(entry, 1) or 0, flag) ~= 0
end

-- The first byte of an entry that has been verified. Later formats say so in two bits, so that one that
-- flips shows; its CRC leaves both out.
local function marked(entry)
  local first = string.byte(entry, 1)
  return string.char(bit.bor(first, bit.band(first, 7) == 1 and VERIFIED or VERIFIED + 64))
end

local function discard(collection, document, entry)
  local token = redis.call('HINCRBY', K.totals, 'gc', 1)
  redis.call('HSET', K.gcitem .. token, 'c', collection, 'd', document, 'e', entry)
  redis.call('ZADD', K.gc, now + P.gc_delay_ms, token)
  return token
end

-- Keeps the room that was made for a collection's vectors, if it is not to go yet. See collection_room.
local function take_room(token)
  if token == '' then return true end
  local till = tonumber(redis.call('HGET', K.gcitem .. token, 'till'))
  if not till or till <= now then return false end
  redis.call('ZREM', K.gc, token)
  redis.call('UNLINK', K.gcitem .. token)
  return true
end

-- The name by which users know an own name: its own, where a migration or an earlier collection of
-- the same name has not left it to another.
local function user_name(own)
  local aliases = redis.call('HGETALL', K.aliases)
  for i = 1, #aliases, 2 do
    if aliases[i + 1] == own then return aliases[i] end
  end
  return own
end

-- Takes what stands under an own name out of this ledger at once, but for its vectors; drop.lua sweeps its keys.
local function take_away(own, uid, buckets)
  redis.call('HDEL', K.uids, own)
  redis.call('HDEL', K.collections, own)
  redis.call('UNLINK', K.tombs .. uid, K.counts .. uid)
  for _, generation in ipairs(redis.call('HKEYS', K.generations .. uid)) do
    redis.call('UNLINK', K.tables .. generation)
  end
  redis.call('UNLINK', K.generations .. uid)
  redis.call('SREM', K.sealed, uid)
  redis.call('RPUSH', K.dropped, uid .. ' ' .. buckets .. ' 0')
  redis.call('SREM', K.hidden, own)
  local name = user_name(own)
  if name ~= own then redis.call('HDEL', K.aliases, name) end
end

-- Makes what stands under an own name invisible at once. Its vectors are garbage of no document, so that they go even
-- if the caller ends here.
local function raze(own, buckets)
  local uid = redis.call('HGET', K.uids, own)
  if uid then take_away(own, uid, buckets) end
  discard(own, '', '')
  redis.call('SREM', K.hidden, own)
  local name = user_name(own)
  if name ~= own then redis.call('HDEL', K.aliases, name) end
end

-- Whether a collection is being migrated, or keeps the old side of a migration.
local function migrating(name)
  local row = redis.call('HGET', K.migrations, name)
  if not row then return false end
  local state = cjson.decode(row)
  return state.stage ~= 'done' or (state.source ~= state.target and not state.old_removed)
end

local function stored_entry(uid, bucket, document)
  local short = redis.call('HGET', K.docs .. uid .. ':' .. bucket, document)
  if not short or not has_flag(short, LONG) then return short, short end
  return redis.call('GET', K.long .. uid .. ':' .. document) or short, short
end

-- Reads writes of documents out of ARGV: op, collection, uid, bucket, document, short, long, keep,
-- text. Op is w for a write, m for one of metadata alone, d for a delete; behind a colon the number of
-- the entry that must be stored. Returns nil when a collection was made again meanwhile: the caller looks up its uid again.
local function read_writes(at, count)
  local writes = {}
  for i = 0, count - 1 do
    local b = at + i * 9
    local w = { op = ARGV[b], collection = ARGV[b + 1], uid = ARGV[b + 2], bucket = ARGV[b + 3],
      document = ARGV[b + 4], short = ARGV[b + 5], long = ARGV[b + 6], keep = ARGV[b + 7],
      text = ARGV[b + 8] }
    local op, expected = string.match(w.op, '^(%a):(%d+)$')
    if op then w.op, w.expected, w.meta = op == 'm' and 'w' or op, tonumber(expected), op == 'm' end
    if (redis.call('HGET', K.uids, w.collection) or '') ~= w.uid then return nil end
    writes[#writes + 1] = w
  end
  return writes
end

-- Counts. What a collection holds is kept in a hash of its own and changed in the step that changes the
-- entries, so that both are always of the same moment; count.lua counts again. Fields: `full` is when all
-- was counted last, `pass` the scrub's pass it was counted for, `at` the next bucket of a count that is
-- under way, `new:` before a field what that count has found so far.
local CODECS = 6 -- numbers of codecs are below it
local LONGEST_TEXT = 2 ^ 48 -- what says more is damage
local changes = {} -- uid -> what this step adds to its counts

local function varint(data, at)
  local value, unit = 0, 1
  for i = at, at + 8 do
    local byte = string.byte(data, i)
    if not byte then return nil end
    value = value + bit.band(byte, 127) * unit
    if byte < 128 then return value, i + 1 end
    unit = unit * 128
  end
end

-- What an entry adds to the counts, by field. Reads the format of verso_core.record.
local function measured(entry)
  local unreadable, size, first = { unreadable = 1 }, #entry, string.byte(entry, 1) or 0
  local version = bit.band(first, 7)
  if size < 7 or version < 1 or version > 4 or bit.band(first, version == 1 and 224 or 32) ~= 0 then
    return unreadable
  end
  local text, at = varint(entry, 8)
  if not at or text > LONGEST_TEXT then return unreadable end
  local records, behind = varint(entry, at)
  if not behind then return unreadable end
  at = behind + (bit.band(first, 128) ~= 0 and 4 or 0)
  local sums = { documents = 1, chunks = records, bytes_text = text, bytes_entries = size,
    verified = bit.band(first, VERIFIED + 64) ~= 0 and 1 or 0 }
  local last = version == 1 and size or size - 2
  local cold, left = version == 4, at - 1
  for _ = 1, records do
    local length, start = varint(entry, at)
    if cold then length, start = 9, at end
    if not start or length < (cold and 9 or 13) or start + length - 1 > last then return unreadable end
    local first_byte = string.byte(entry, start)
    local codec, slot = bit.band(first_byte, 7), 'slot:' .. bit.rshift(first_byte, 3)
    if codec >= CODECS then return unreadable end
    sums[slot] = (sums[slot] or 0) + 1
    sums['records:' .. codec] = (sums['records:' .. codec] or 0) + 1
    local patch = cold and 0 or length - 12 -- payload and a byte of codec
    sums['bytes:' .. codec] = (sums['bytes:' .. codec] or 0) + patch
    at = start + length
  end
  if cold then -- where it is: 8 bytes of a name, offset, twice the size
    local _, behind_offset = varint(entry, at + 8)
    local place
    place, at = varint(entry, behind_offset or size + 1)
    if not at then return unreadable end
    sums.cold = math.floor(place / 2)
    -- All patches count as of the first record's codec. A record has 13 bytes besides, or up to 2 more.
    local field = records > 0 and 'bytes:' .. bit.band(string.byte(entry, left + 1), 7)
    if field then sums[field] = math.max(0, sums.cold - 6 - left - 13 * records) end
  end
  return at == last + 1 and sums or unreadable
end

local function counts_of(uid)
  if not changes[uid] then
    local v = redis.call('HMGET', K.counts .. uid, 'full', 'at')
    changes[uid] = { full = v[1], at = tonumber(v[2]), sums = {} }
  end
  return changes[uid]
end

local function add_to(sums, more, sign, prefix)
  for field, n in pairs(more) do
    local name = prefix and prefix .. field or field
    sums[name] = (sums[name] or 0) + sign * n
  end
end

-- Adds to what is kept, and to what a count under way has found where it was in this bucket already.
local function count_change(uid, bucket, sums, sign)
  local c = counts_of(uid)
  if c.full then add_to(c.sums, sums, sign) end
  if c.at and tonumber(bucket) < c.at then add_to(c.sums, sums, sign, 'new:') end
end

local function count_entry(uid, bucket, entry, sign)
  local c = counts_of(uid)
  if not entry or not (c.full or c.at) then return end
  local sums = measured(entry)
  -- It is not known what this entry added when it could be read: everything must be counted again.
  if sign < 0 and sums.unreadable then c.lost = true end
  count_change(uid, bucket, sums, sign)
end

-- Writes what this step has counted. Every step that changes entries ends with it.
local function keep_counts()
  for uid, c in pairs(changes) do
    local name, fields, row = K.counts .. uid, {}, {}
    for field, n in pairs(c.sums) do
      if n ~= 0 then fields[#fields + 1] = field end
    end
    if c.lost then
      redis.call('UNLINK', name)
    elseif #fields > 0 then
      local old = redis.call('HMGET', name, unpack(fields))
      for i, field in ipairs(fields) do
        row[2 * i - 1] = field
        row[2 * i] = string.format('%.0f', (tonumber(old[i]) or 0) + c.sums[field])
      end
      redis.call('HSET', name, unpack(row))
    end
  end
end

-- `old` is the whole entry that it replaces, if there is one.
local function put_document(w, old)
  count_entry(w.uid, w.bucket, old, -1)
  count_entry(w.uid, w.bucket, w.long ~= '' and w.long or w.short, 1)
  touch(w.uid, 'd:' .. w.bucket)
  local name = w.uid .. ':' .. w.document
  redis.call('HSET', K.docs .. w.uid .. ':' .. w.bucket, w.document, w.short)
  if w.long ~= '' then redis.call('SET', K.long .. name, w.long) else redis.call('UNLINK', K.long .. name) end
  if w.meta then return end -- the text stays what it was
  if w.keep == '1' then redis.call('SET', K.text .. name, w.text) else redis.call('UNLINK', K.text .. name) end
end

local function take_document(w, old)
  count_entry(w.uid, w.bucket, old, -1)
  touch(w.uid, 'd:' .. w.bucket)
  local name = w.uid .. ':' .. w.document
  redis.call('HDEL', K.docs .. w.uid .. ':' .. w.bucket, w.document)
  redis.call('UNLINK', K.long .. name, K.text .. name)
end

-- Applies one write or delete that the slice with number seq asks for; a later one has precedence.
local function apply(w, seq)
  local mine = w.long ~= '' and w.long or w.short
  if w.uid == '' then return end -- the collection is gone, and its points with it
  if seq < tonumber(w.uid) then -- this was asked of an earlier collection of the same name
    if w.op == 'w' then discard(w.collection, w.document, mine) end
    return
  end
  local old, head = stored_entry(w.uid, w.bucket, w.document)
  local old_seq = head and entry_seq(head) or tonumber(redis.call('ZSCORE', K.tombs .. w.uid, w.document) or -1)
  -- A number that was never given out is damage, and must not keep later writes out for ever.
  if old_seq > seq and old_seq <= tonumber(redis.call('GET', K.seq)) then
    if w.op == 'w' then discard(w.collection, w.document, mine) end
    return
  end
  if old and (old_seq ~= seq or w.op == 'd') then discard(w.collection, w.document, old) end
  if w.op == 'w' then
    put_document(w, old)
    redis.call('ZREM', K.tombs .. w.uid, w.document)
  else
    take_document(w, old)
    redis.call('ZADD', K.tombs .. w.uid, seq, w.document)
  end
end
