-- Returns one document's whole entry in one step. ARGV: uid, bucket, document.
local whole = stored_entry(ARGV[1], ARGV[2], ARGV[3])
return whole
