"""Collections of several partitions: what is asked of one is asked of each, and joined.

Each partition is a collection of a ledger like any other (:mod:`verso_core.jobs.collections`), so a
job touches one ledger. What concerns one document goes to its partition as a job of it; requests of
several documents that are written are a group of jobs (:mod:`verso_ledger.ledgers.submission`);
reads ask all partitions at once and are never answered with a 202.
"""
