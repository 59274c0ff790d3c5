-- Records a heartbeat by the server's clock. ARGV: field.
redis.call('HSET', K.health, ARGV[1], now)
return 1
