-- Takes the hand of a channel out of the line. ARGV: queue, channel. Gives 0 when none stands there: it
-- may have been given a slice, which is on its way.
local hand = in_line(ARGV[1], ARGV[2])
return hand and unlogged('ZREM', K.line .. ARGV[1], hand) or 0
