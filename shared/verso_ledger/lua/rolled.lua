-- Returns 1 if a partition by time takes no more lines, else 0. ARGV: its name as users know it.
return has_rolled(ARGV[1]) and 1 or 0
