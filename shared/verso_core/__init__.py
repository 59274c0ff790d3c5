"""The contracts every part of Verso shares: errors, jobs, records, artifacts, the ledger.

Standard library and pydantic only (plus redis in ``ledger``). Nothing here knows a model, a vector
store or HTTP; the parts that do import this package and never one another.
"""

DISTRIBUTION = "verso-retrieval"
"""The name that pip installs Verso by; ``verso`` is another project's."""
