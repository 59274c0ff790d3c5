-- Returns a hash of what each key holds, '' of one that is not there. ARGV: for each its name, and of lists and sorted
-- sets the ranks of the first and last element. Equal for equal contents, however a server keeps them: members of hashes
-- and sets have no order.

local function in_order(rows) return redis.sha1hex(cmsgpack.pack(rows)) end

local function in_any_order(rows, width)
  local hashes = {}
  for i = 1, #rows, width do
    hashes[#hashes + 1] = redis.sha1hex(cmsgpack.pack(rows[i], width == 2 and rows[i + 1]))
  end
  table.sort(hashes)
  return redis.sha1hex(table.concat(hashes))
end

local readers = {
  string = function(key) return redis.sha1hex(redis.call('GET', key)) end,
  hash = function(key) return in_any_order(redis.call('HGETALL', key), 2) end,
  set = function(key) return in_any_order(redis.call('SMEMBERS', key), 1) end,
  zset = function(key, first, last) return in_order(redis.call('ZRANGE', key, first, last, 'WITHSCORES')) end,
  list = function(key, first, last) return in_order(redis.call('LRANGE', key, first, last)) end,
  stream = function(key) return in_order(redis.call('XRANGE', key, '-', '+')) end,
}

local found = {}
for i = 1, #ARGV, 3 do
  local read = readers[redis.call('TYPE', ARGV[i]).ok]
  found[#found + 1] = read and read(ARGV[i], ARGV[i + 1], ARGV[i + 2]) or ''
end
return found
