"""Functions on a device run by plans: a plan repeats the commands of a recorded call without Python.

A front end hands over a :class:`LinkedFunction`: its nodes in order, what computes each, and the cells that hold its
values. The names of values are opaque here: whatever the front end can hash. Nothing in this package knows a host.

Flow of a call (``machine``): the shapes of the inputs and the buffers of the shared arrays select a plan. Without one,
the nodes compute one by one, and a recorder keeps the commands that they enqueue. The next call with the same key makes
a ``plan`` of the recording: buffer assignment and kernel arguments are done once. From then on a call only enqueues the
commands of its ``steps``.

A node may depend on values of the host that change: an index, a learning rate, classes. ``roles`` finds these nodes
once for a function. Each call compares their inputs with the recorded ones, and computes a node in Python if an input
has changed, or has moved because of such a change.

A plan keeps a node's result on the host from one call to the next only if it owns the result: no value that may share
its memory is an input, an output, a next value, or overwritten. Each call computes the other results. A next value is
where its input is, on the host or on the device.
"""

from optdb.device.plans.graph import Node, ValueId
from optdb.device.plans.linked import LinkedFunction, PlanOptions
from optdb.device.plans.machine import PlannedMachine

__all__ = ["LinkedFunction", "Node", "PlanOptions", "PlannedMachine", "ValueId"]
