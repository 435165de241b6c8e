"""Linking of Theano functions with device arrays to a virtual machine that runs them with plans."""

from optdb.opencl.linking.patches import install, uninstall

__all__ = ["install", "uninstall"]
