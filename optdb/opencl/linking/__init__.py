"""How functions of Theano's with arrays on a device are linked: to a machine that runs them by plans.

- ``patches``: what is exchanged in Theano's linkers.
- ``planned_vm``: Theano's virtual machine around the plans of ``optdb.device``.
- ``nodes``: what Theano's nodes see, and where they compute.
- ``overwriting``, ``waiting``: the order of nodes: those that overwrite shared variables last, and waits late.
- ``committing``: Theano's own machines, for functions that plans do not suit.
"""

from optdb.opencl.linking.patches import install, uninstall
from optdb.opencl.linking.planned_vm import PlannedVM

__all__ = ["PlannedVM", "install", "uninstall"]
