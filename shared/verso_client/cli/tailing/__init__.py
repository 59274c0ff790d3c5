"""``verso tail``: follow files, and have every line of them accepted once.

The platform remembers how far each file was accepted, by a name of the host, the file and the
file's beginning, in the step that accepts its lines. What this command notes on disk lags behind
that and may be lost: a part that is sent again is refused, with the place to go on from.
"""
