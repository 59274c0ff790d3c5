"""Log records that agents send: read by protocol, routed, and accepted together.

``otlp``, ``bulk``, ``loki``, ``syslog`` and ``mapping`` read bytes as records; ``records`` says
what a record is, ``routing`` where it goes; ``acceptance`` writes it to the ledger.
"""
