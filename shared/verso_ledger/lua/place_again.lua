-- Places a collection on another ledger, if it is placed as the caller saw. ARGV: key of the placements, which other
-- steps do not need, collection, ledger seen, new ledger. Returns the ledger that it is placed on.
local placed = redis.call('HGET', ARGV[1], ARGV[2])
if placed and placed ~= ARGV[3] then return placed end
redis.call('HSET', ARGV[1], ARGV[2], ARGV[4])
return ARGV[4]
