-- Requests a pass of the scrub: at once, or when the one under way has ended.
redis.call('HSET', K.scrub, 'asked', now)
return 1
