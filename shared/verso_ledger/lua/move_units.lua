-- Returns the keys that documents of some buckets have beside their bucket's: bucket, kind and document, in turn. ARGV: uid, 1
-- if the collection keeps texts, then the buckets.
local found = {}
for i = 3, #ARGV do
  local rows = redis.call('HGETALL', K.docs .. ARGV[1] .. ':' .. ARGV[i])
  for n = 1, #rows, 2 do
    if has_flag(rows[n + 1], LONG) then
      found[#found + 1] = ARGV[i]
      found[#found + 1] = 'long'
      found[#found + 1] = rows[n]
    end
    if ARGV[2] == '1' then
      found[#found + 1] = ARGV[i]
      found[#found + 1] = 'text'
      found[#found + 1] = rows[n]
    end
  end
end
return found
