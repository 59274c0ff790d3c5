-- Puts entries of documents into cold storage: replaces each by what says where it is, if it is still what was read.
-- Sequence numbers, points and texts stay. ARGV: until when in ms, how many, the entries that were read, then as many
-- writes (see read_writes). A call that comes later is refused: their object may have been removed as one that nothing
-- names. Of a collection that moves to another ledger nothing is replaced: a worker copies the objects that there are.
if read_only() or now > tonumber(ARGV[1]) then return 'stale' end
local count = tonumber(ARGV[2])
local writes = read_writes(3 + count, count)
if not writes then return 'moved' end
for i, w in ipairs(writes) do
  local stays = w.uid == '' or shut('o:' .. w.collection, true)
    or redis.call('SISMEMBER', K.tracked, born(w.uid)) == 1
  local stored = not stays and stored_entry(w.uid, w.bucket, w.document)
  if stored and stored == ARGV[2 + i] then
    w.meta = true
    put_document(w, stored)
  end
end
keep_counts()
return 'done'
