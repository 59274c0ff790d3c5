"""The training service: takes train jobs from the ledger, and publishes what they give as canaries.

    desk.py      claims one job at a time, and ends it: committed, failed, or given back
    harvest.py   rows of a collection, read through the platform
    process.py   one training in a process of its own: told apart, killed, never left behind
    job.py       what that process does; the only module here that loads torch

The service itself stays small and renews its lease while a training takes all the cores. A
training that is killed, or whose service is, is begun again from the rows in its folder.
"""
