"""The training service: claim train jobs from the ledger and publish their heads as canaries.

    trainer.py      claims one job at a time and ends it: commits, fails or releases it
    row_export.py   reads the rows of a collection through the platform
    process.py      runs one training in its own process, kills it, never leaves it behind
    job.py          the work of that process; the only module here that loads torch

The service itself stays small and renews its lease while a training uses all the cores. If a
training or its service is killed, the next attempt starts from the rows in the job's folder.
"""
