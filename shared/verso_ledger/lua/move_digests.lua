-- Returns a hash of what each key holds, '' of one that is not there. ARGV: keys. Equal for equal contents, however a
-- server keeps them: members of hashes and sets have no order.
local LARGE = 10000 -- members of a set: more of them would keep all others waiting

local function row(first, second)
  return #first .. ':' .. first .. (second and #second .. ':' .. second or '')
end

local function in_order(rows)
  for i, one in ipairs(rows) do rows[i] = row(one) end
  return redis.sha1hex(table.concat(rows))
end

local function in_any_order(rows, width)
  local hashes = {}
  for i = 1, #rows, width do hashes[#hashes + 1] = redis.sha1hex(row(rows[i], width == 2 and rows[i + 1])) end
  table.sort(hashes)
  return redis.sha1hex(table.concat(hashes))
end

-- The sets of a collection are identities. They only grow, and are copied whole, with the server's checksum: one of
-- the same size as before is the same.
local function of_set(key)
  local size = redis.call('SCARD', key)
  if size > LARGE then return 'set of ' .. size end
  return in_any_order(redis.call('SMEMBERS', key), 1)
end

local readers = {
  string = function(key) return redis.sha1hex(redis.call('GET', key)) end,
  hash = function(key) return in_any_order(redis.call('HGETALL', key), 2) end,
  set = of_set,
  zset = function(key) return in_order(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')) end,
  list = function(key) return in_order(redis.call('LRANGE', key, 0, -1)) end,
  stream = function(key)
    local rows = {}
    for i, one in ipairs(redis.call('XRANGE', key, '-', '+')) do rows[i] = row(one[1], in_order(one[2])) end
    return redis.sha1hex(table.concat(rows))
  end,
}

local found = {}
for i, key in ipairs(ARGV) do
  local read = readers[redis.call('TYPE', key).ok]
  found[i] = read and read(key) or ''
end
return found
