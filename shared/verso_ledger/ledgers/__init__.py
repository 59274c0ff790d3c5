"""The ledgers of a platform as the gateway uses them: which one has what, and lists over all.

The **home** ledger is the one that a platform has before it has others. It keeps what belongs to no
collection: where collections are placed, which ledgers are draining, and sessions. Every ledger is
complete: a collection, its jobs and their queues are on one ledger, so every step still runs on one
server.
"""
