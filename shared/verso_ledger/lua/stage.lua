-- Reserves room for a job whose payloads are stored next, before it is accepted, so that no queue that is full
-- gets them at all. ARGV: job, queue, tenant, slices, bytes, max slices, max bytes, the tenant's max slices, its
-- max bytes, how long in ms. Returns reserved; or full and the seconds to wait; or new and the job, if it was accepted.
local job, queue, tenant, slices, bytes = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('EXISTS', K.job .. job) == 1 then return { 'new', job } end -- our own call, repeated
end_reservations(1000)
local limits = { tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]) }
local wait_s = full_for(queue, tenant, slices, bytes, limits)
if wait_s then return { 'full', wait_s } end
reserve(job, slices, bytes, tonumber(ARGV[10]))
return { 'reserved' }
