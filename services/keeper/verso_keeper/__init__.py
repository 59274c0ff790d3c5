"""The keeper: takes back expired leases, sends wake-ups for due work, and counts the queues.

It holds no state. Any number of keepers may run on one ledger; one is enough.
"""
