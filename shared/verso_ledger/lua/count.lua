-- Counts a part of what a collection holds, from one bucket on, beside the counts that are kept. Changes
-- of buckets that it was in are added to both, so at the last bucket what it has found is of that one
-- moment, and takes the place of what was kept. ARGV: own name, uid, buckets, the scrub's pass that it is
-- done for ('' counts only where nothing is kept). Returns 'more', 'kept' where nothing is left to do, or
-- 'mended' where what was kept was wrong.
local uid, buckets, pass = ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('HGET', K.uids, ARGV[1]) ~= uid then return 'moved' end
local name = K.counts .. uid
local v = redis.call('HMGET', name, 'full', 'pass', 'at')
if v[1] and (pass == '' or pass == v[2]) then return 'kept' end

local at, seen, sums = tonumber(v[3] or 0), 0, counts_of(uid).sums
while at < buckets and seen < P.count_entries do
  local rows = redis.call('HGETALL', K.docs .. uid .. ':' .. at)
  for i = 1, #rows, 2 do
    local entry = rows[i + 1]
    if has_flag(entry, LONG) then
      entry = redis.call('GET', K.long .. uid .. ':' .. rows[i]) or entry
      seen = seen + #entry / 1024
    end
    add_to(sums, measured(entry), 1, 'new:')
  end
  seen = seen + 1 + #rows / 2
  at = at + 1
end
keep_counts()
redis.call('HSET', name, 'at', at)
if at < buckets then return 'more' end

local row, wrong = redis.call('HGETALL', name), false
local found, kept = { full = now, pass = pass }, {}
for i = 1, #row, 2 do
  local field = string.match(row[i], '^new:(.+)$')
  if field then found[field] = row[i + 1] else kept[row[i]] = row[i + 1] end
end
redis.call('UNLINK', name)
for field, n in pairs(found) do
  redis.call('HSET', name, field, n)
end
for _, side in ipairs({ found, kept }) do
  for field in pairs(side) do
    -- Slots are counted since a later version than the rest.
    local counted = field ~= 'full' and field ~= 'pass' and field ~= 'at' and not string.match(field, '^slot:')
    wrong = wrong or counted and tonumber(found[field] or 0) ~= tonumber(kept[field] or 0)
  end
end
if not v[1] or not wrong then return 'kept' end
redis.call('HINCRBY', K.totals, 'counts:mended', 1)
return 'mended'
