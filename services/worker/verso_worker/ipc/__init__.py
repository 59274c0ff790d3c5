"""Calls between the worker and its child processes: frames over a Unix socket.

One connection carries one call at a time: a request, then its reply. Several concurrent calls need
several connections; a client keeps a pool of them.

    message  = u32 length, little endian, then one frame (verso_core.frame)
    request  = frame with header {"op": name, "header": {...}} and the call's blobs; and, if known,
               {"trace": traceparent, "slice": id} of the work that the call belongs to
    reply    = frame with header {"header": {...}} and blobs, or {"error": error body}

The server itself answers the operation ``ping``, which never waits for a busy handler. An error of
Verso's tree crosses as its body and is raised on the other side as the same class. Any other
exception of a handler arrives as ``internal`` and is logged where it happened.

A caller hangs up when its time is over, when its work was cancelled (``cancellation``), and when it
dies. A handler that works in batches calls ``server.check_caller`` between them, so that work that
nobody waits for ends.
"""
