-- Replaces a document's entry, and the text kept beside it, if the entry is still the one the caller
-- judged. ARGV: that entry, then one write (see read_writes). The sequence number stays, so a repair
-- never stands in the way of a write that was accepted later.
if read_only() then return 'stale' end
local writes = read_writes(2, 1)
if not writes then return 'moved' end
local w, judged = writes[1], ARGV[1]
if shut('o:' .. w.collection, true) then return 'stale' end
local mine = w.long ~= '' and w.long or w.short
local stored = stored_entry(w.uid, w.bucket, w.document)
if stored == mine and mine ~= judged then return 'done' end -- our own call, repeated
if not stored or stored ~= judged then return 'stale' end
if mine ~= judged then discard(w.collection, w.document, judged) end
put_document(w, stored)
keep_counts()
return 'done'
