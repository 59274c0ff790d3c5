"""The receiver of syslog, a process of its own: TCP, TLS and UDP.

Syslog knows no reply. On TCP and TLS (RFC 6587, RFC 5425) the receiver reads no further than what
is on disk in the ledger, so that a sender's own queue holds what there is no room for. UDP (RFC
5426) cannot be held up: what does not fit is dropped and counted.
"""
