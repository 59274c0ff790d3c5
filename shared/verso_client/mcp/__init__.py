"""Read-only tools for agents, by the Model Context Protocol (modelcontextprotocol.io).

The tools (:mod:`verso_client.mcp.tools`) are calls of :class:`~verso_client.AsyncClient`, so one
implementation serves both transports: ``verso mcp`` over standard input and output, and the
gateway's ``/mcp``, where the client calls the gateway itself, in the same process.

Needs the extra ``mcp``; nothing else imports this package before it is used.
"""
