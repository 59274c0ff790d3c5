-- Ends what a move has left at the ledger that got the collection. ARGV: own name.
redis.call('HDEL', K.arriving, ARGV[1])
return 'done'
