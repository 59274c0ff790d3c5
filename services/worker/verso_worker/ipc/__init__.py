"""Calls between the worker and its child processes."""
