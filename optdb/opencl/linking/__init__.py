"""Links Theano functions with device arrays to a machine that runs them with plans.

- ``patches``: the patches of Theano's linkers.
- ``planned_vm``: Theano's virtual machine around the plans of ``optdb.device``.
- ``nodes``: what Theano's nodes read, and where they compute.
- ``overwriting``, ``waiting``: the order of nodes; those that overwrite shared variables run last, and waits late.
- ``committing``: Theano's own machines, for functions without plans.
"""

from optdb.opencl.linking.patches import install, uninstall

__all__ = ["install", "uninstall"]
