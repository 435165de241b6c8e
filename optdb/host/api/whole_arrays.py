"""Nodes without C code: how they compute whole arrays."""

from optdb.host.theano.vectorized.plug import install, uninstall

__all__ = ["install", "uninstall"]
