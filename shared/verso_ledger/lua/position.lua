-- Says where a source of lines stands. ARGV: collection as users know it, hash of the source. Returns nothing if it is
-- not known.
local uid = lines_uid(redis.call('HGET', K.aliases, ARGV[1]) or ARGV[1])
return uid and source_position(uid, ARGV[2]).at
