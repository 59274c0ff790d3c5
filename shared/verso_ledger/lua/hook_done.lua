-- A receiver has taken a message. ARGV: token.
if redis.call('ZREM', K.hooks, ARGV[1]) == 1 then
  redis.call('UNLINK', K.hookitem .. ARGV[1])
  redis.call('HINCRBY', K.totals, 'hooks:sent', 1)
end
return 1
