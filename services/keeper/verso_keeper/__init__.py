"""The keeper: takes work back from the dead, rings for what waits, and counts the queues.

It holds no state. Any number of keepers may run on one ledger; one is enough.
"""
