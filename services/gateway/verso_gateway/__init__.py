"""The HTTP front of Verso: it turns requests into ledger jobs and job results into answers.

The gateway knows jobs, not models: vectors and texts cross it as opaque bytes, and it imports no
numerical, model or vector-store library.
"""
