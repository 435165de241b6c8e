"""Links Theano functions that use device arrays, with a virtual machine that runs them with plans."""

from optdb.opencl.linking.patches import install, uninstall

__all__ = ["install", "uninstall"]
