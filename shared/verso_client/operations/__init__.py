"""What a client can ask of the platform, by family, without input or output of its own.

Each function is a generator of :class:`~verso_client.exchange.Call` and ``Pause`` steps that
returns its result; :mod:`verso_client.client` and :mod:`verso_client.async_client` perform the
steps. Two rules hold for all of them (:mod:`verso_client.operations.jobs`):

1. Every request that makes a job carries an Idempotency-Key, so that repeating it after a broken
   connection finds the job that the first attempt made.
2. A 202 means that the job is not finished: it is followed to its end, then its results are read.
"""

from verso_client.operations import collections, documents, heads, jobs, lines, search

__all__ = ["collections", "documents", "heads", "jobs", "lines", "search"]
