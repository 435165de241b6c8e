"""Runs functions on a device with plans; a plan repeats the commands of a recorded call without running Python.

A front end passes a :class:`LinkedFunction`: its nodes in order, their compute functions, and the cells that hold its
values. Values are identified by hashable objects from the front end. This package does not depend on a host.

Flow of a call (``machine``): the shapes of the inputs and the buffers of the shared arrays select a plan. If there is
none, the nodes run one by one, and a recorder keeps the commands that they enqueue. The next call with the same key
makes a ``plan`` from the recording: it assigns buffers and sets kernel arguments once. From then on, a call only
enqueues the commands of the plan's ``steps``.

A node may depend on host values that change, such as an index, a learning rate, or class labels. ``roles`` finds these
nodes once per function. Each call compares their inputs with the recorded ones, and runs a node in Python if an input's
value, or its address on the device, has changed.

A plan keeps a node's host result between calls only if it owns the result: no value that may share the result's memory
is an input, an output or a next value, and none is overwritten. Other host results are recomputed in every call. A next
value is on the same side as its input, either host or device.
"""

from optdb.device.plans.graph import Node, ValueId
from optdb.device.plans.linked import LinkedFunction, PlanOptions
from optdb.device.plans.machine import PlannedMachine

__all__ = ["LinkedFunction", "Node", "PlanOptions", "PlannedMachine", "ValueId"]
