-- Ends the work of a slice: result, documents, counters and state in one step, guarded by the fence.
-- ARGV: slice, fence, result, ok, errors, delay of the verify in ms, queue of the verify phase, 1 if the
-- waiting caller has been notified of the result, count of writes, then the writes (see read_writes), then
-- the segments of lines, if there are any (see put_segments).
local sid, fence = ARGV[1], ARGV[2]
local s = held(sid, fence)
if not s or s.ph ~= 'work' then
  if redis.call('HGET', K.slice .. sid, 'cf') == fence then return 'done' end
  redis.call('HINCRBY', K.totals, 'stale', 1)
  return 'stale'
end
local count = tonumber(ARGV[9])
local segments_at = 10 + count * 9
local segments = tonumber(ARGV[segments_at] or '0')
if count + segments > 0 and read_only() then return 'sealed' end -- to be done again, here or in a better ledger
local writes = read_writes(10, count)
if not writes then return 'moved' end
for _, w in ipairs(writes) do
  -- Done for a collection that a migration has replaced, or is about to: to be done again.
  local mark = w.uid ~= '' and w.uid or 'gone:' .. w.collection
  if redis.call('SISMEMBER', K.sealed, mark) == 1 or shut('o:' .. w.collection, true) then return 'sealed' end
end
-- Worked out from entries that are not stored any more: to be done again.
for _, w in ipairs(writes) do
  if w.expected and w.uid ~= '' then
    local _, head = stored_entry(w.uid, w.bucket, w.document)
    if not head or entry_seq(head) ~= w.expected then return 'sealed' end
  end
end
if segments > 0 then
  local own = ARGV[segments_at + 1]
  local mark = redis.call('HGET', K.uids, own) or 'gone:' .. own
  if redis.call('SISMEMBER', K.sealed, mark) == 1 or shut('o:' .. own, true) then return 'sealed' end
  local uid = ARGV[segments_at + 2]
  if lines_uid(own) == uid and not has_basis(uid, segments_at + 3) then return 'behind' end
end
if #writes + segments > 0 and not numbered(sid, s) then
  make_dead_letter(sid, s, 'record_corrupt', "the slice's sequence number is damaged")
  return 'stale'
end

local wrote = false
for _, w in ipairs(writes) do
  apply(w, s.seq)
  wrote = wrote or (w.op == 'w' and not w.meta)
end
keep_counts()
if segments > 0 then
  put_segments(segments_at, segments)
  wrote = true
end
redis.call('HSET', K.result .. s.job, s.n, ARGV[3])
redis.call('HSET', K.slice .. sid, 'cf', fence)
redis.call('ZREM', K.leased .. s.q, sid)
s.notified = ARGV[8] == '1'
if wrote then redis.call('HINCRBY', K.job .. s.job, 'n_verify', 1) end
end_work(sid, s, 'succeeded', tonumber(ARGV[4]), tonumber(ARGV[5]))
if wrote then
  s.q = ARGV[7]
  redis.call('HSET', K.slice .. sid, 'ph', 'verify', 'crash', 0, 'errs', 0, 'cs', s.seq)
  make_ready(sid, s, tonumber(ARGV[6]))
  load_add('unverified', 1, s.bytes)
else
  forget(sid)
end
return 'done'
