-- Says which identities of log records were accepted lately. ARGV: seconds that they are remembered, count of
-- collections; for each: name, count, hashes. Returns the positions of the known ones, from 0, over all collections.
local known, at = {}, 0
each_identity(1, function(sets, hash)
  if is_known(sets, hash) then known[#known + 1] = at end
  at = at + 1
end)
return known
