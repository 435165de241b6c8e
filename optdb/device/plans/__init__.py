"""Runs functions on a device with plans: a plan repeats the commands of a recorded call without Python.

A front end hands over a :class:`LinkedFunction`: its nodes in order, their compute functions, and the cells that hold
its values. Values are identified by any hashable object of the front end. This package does not depend on a host.

Flow of a call (``machine``): the shapes of the inputs and the buffers of the shared arrays select a plan. Without one,
the nodes compute one by one, and a recorder keeps the commands that they enqueue. The next call with the same key makes
a ``plan`` from the recording: it assigns buffers and sets kernel arguments once. From then on, a call only enqueues the
commands of the plan's ``steps``.

A node may depend on host values that change, such as an index, a learning rate, or classes. ``roles`` finds these nodes
once for a function. Each call compares their inputs with the recorded ones, and computes a node in Python if the value
of an input, or its address on the device, has changed.

A plan keeps a node's host result from one call to the next only if it owns the result: no value that may share its
memory is an input, an output, a next value, or overwritten. Each call computes the other host results. A next value is
on the same side as its input: on the host or on the device.
"""

from optdb.device.plans.graph import Node, ValueId
from optdb.device.plans.linked import LinkedFunction, PlanOptions
from optdb.device.plans.machine import PlannedMachine

__all__ = ["LinkedFunction", "Node", "PlanOptions", "PlannedMachine", "ValueId"]
