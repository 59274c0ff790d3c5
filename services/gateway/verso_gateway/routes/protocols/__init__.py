"""Routes that speak the protocols of other servers of models; their shapes and errors are in
:mod:`verso_gateway.protocols`."""
