-- Ends one verify pass. ARGV: slice, fence, retention of the raw texts in ms, delay of the next verify in ms, count of entries read back
-- right, count of rewrites; then for each entry: collection, uid, bucket, document; then the writes, and
-- for each the stored entry that proved to be this slice's own, '' none; then own name and uid of a log collection
-- and how many of its lines were read back, if any were.
-- With nothing rewritten the raw texts are dropped after the retention; otherwise the new bytes are verified too,
-- ever later, and at last the slice is a dead letter, which keeps the raw texts.
local sid, fence, grace = ARGV[1], ARGV[2], tonumber(ARGV[3])
local right, rewrites = tonumber(ARGV[5]), tonumber(ARGV[6])
local s = held(sid, fence)
if not s or s.ph ~= 'verify' then
  if redis.call('HGET', K.slice .. sid, 'vf') == fence then return 'done' end
  redis.call('HINCRBY', K.totals, 'stale', 1)
  return 'stale'
end
if read_only() then return 'sealed' end -- to be done again, here or in a better ledger
local writes = read_writes(7 + right * 4, rewrites)
if not writes then return 'moved' end

for i = 0, right - 1 do
  local b = 7 + i * 4
  local uid, bucket, document = ARGV[b + 1], ARGV[b + 2], ARGV[b + 3]
  local whole, head = stored_entry(uid, bucket, document)
  if head and entry_seq(head) == s.seq and not has_flag(head, VERIFIED) then
    touch(uid, 'd:' .. bucket)
    redis.call('HSET', K.docs .. uid .. ':' .. bucket, document, marked(head) .. string.sub(head, 2))
    if not has_flag(whole, VERIFIED + 64) then count_change(uid, bucket, { verified = 1 }, 1) end
    if has_flag(head, LONG) then
      redis.call('SETRANGE', K.long .. uid .. ':' .. document, 0, marked(whole))
    end
  end
end
for i, w in ipairs(writes) do
  local whole, head = stored_entry(w.uid, w.bucket, w.document)
  -- Its own entry, or damage: where this write was committed no earlier one stands. One that seems
  -- later is its own where the caller has proved so, and it was not written since.
  if head and (entry_seq(head) <= s.seq or whole == ARGV[6 + right * 4 + rewrites * 9 + i]) then
    put_document(w, whole)
  end
end
keep_counts()
redis.call('HSET', K.slice .. sid, 'vf', fence)
local lines_at = 7 + right * 4 + rewrites * 10
if ARGV[lines_at] and lines_uid(ARGV[lines_at]) == ARGV[lines_at + 1] then
  log_add(ARGV[lines_at + 1], 'verified', ARGV[lines_at + 2])
end
if rewrites > 0 then
  redis.call('HSET', K.slice .. sid, 'crash', 0, 'errs', 0)
  local again = redis.call('HINCRBY', K.slice .. sid, 'again', 1)
  if again >= P.max_errors then
    make_dead_letter(sid, s, 'record_corrupt', 'a document did not read back, however often it was written')
  else
    make_ready(sid, s, math.min(tonumber(ARGV[4]) * 2 ^ (again - 1), P.max_delay_ms))
  end
  return 'done'
end
redis.call('HSET', K.slice .. sid, 'st', 'succeeded', 'ph', 'verified')
redis.call('ZREM', K.leased .. s.q, sid)
load_add('unverified', -1, -s.bytes)
local job = redis.call('HMGET', K.job .. s.job, 'keep', 'st', 'n_unverified')
if job[2] then
  local left = redis.call('HINCRBY', K.job .. s.job, 'n_verify', -1) + (tonumber(job[3]) or 0)
  if left <= 0 and terminal(job[2]) and job[2] ~= 'dead' then keep_job(s.job, job[1]) end
end
if grace == 0 then
  forget(sid)
else
  redis.call('ZADD', K.drop, now + grace, sid)
end
return 'done'
