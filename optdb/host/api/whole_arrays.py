"""Whole-array computation of nodes without C code."""

from optdb.host.theano.vectorized.plug import install, uninstall

__all__ = ["install", "uninstall"]
