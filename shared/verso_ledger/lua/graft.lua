-- Brings a document of a migration's target to where its source is. ARGV: source, its uid, bucket,
-- document, sequence number that the source must still have ('' for no such document), then one
-- write or delete of the target (see read_writes).
if read_only() then return 'stale' end
local source, uid, bucket, document = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('HGET', K.uids, source) ~= uid then return 'moved' end
local writes = read_writes(6, 1)
if not writes then return 'moved' end
local w = writes[1]
if shut('o:' .. w.collection, true) then return 'stale' end
local _, head = stored_entry(uid, bucket, document)
if (head and tostring(entry_seq(head)) or '') ~= ARGV[5] then return 'stale' end
local mine = w.long ~= '' and w.long or w.short
local old = stored_entry(w.uid, w.bucket, w.document)
if old and old ~= mine then discard(w.collection, w.document, old) end
if w.op == 'w' then put_document(w, old) else take_document(w, old) end
keep_counts()
return 'done'
