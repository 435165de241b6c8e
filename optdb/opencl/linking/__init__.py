"""Linking of Theano functions with device arrays to a virtual machine that runs them with plans.

- ``patches``: the patches to Theano's linkers.
- ``planned_vm``: Theano's virtual machine around the plans of ``optdb.device``.
- ``nodes``: predicates that tell what a Theano node reads and where it is computed.
- ``overwriting``, ``waiting``: the order of nodes. Nodes that overwrite shared variables run last, and waits run late.
- ``committing``: Theano's own virtual machines, for functions without plans.
"""

from optdb.opencl.linking.patches import install, uninstall

__all__ = ["install", "uninstall"]
