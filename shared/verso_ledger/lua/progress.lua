-- Tells how far a slice is, to whoever follows its job. ARGV: slice, fence, JSON.
local s = held(ARGV[1], ARGV[2])
if not s then return 'stale' end
emit(s.job, ARGV[3])
return 'done'
