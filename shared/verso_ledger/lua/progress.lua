-- Adds an event to a job that says how far a slice is. ARGV: slice, fence, JSON.
local s = held(ARGV[1], ARGV[2])
if not s then return 'stale' end
emit(s.job, ARGV[3])
return 'done'
