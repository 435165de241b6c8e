"""Runs functions on a device with plans, which repeat the commands of a recorded call without Python.

A front end passes a :class:`LinkedFunction`, whose values are identified by hashable objects. The shapes of the inputs
and the buffers of the shared arrays select a plan (``machine``). If no plan exists, the nodes run one by one, and a
recorder keeps the commands that they enqueue. The next call with the same shapes and buffers makes a ``plan`` from the
recording: it assigns buffers and sets kernel arguments once. Later calls only enqueue the commands of the plan's
``steps``. The next value of an input on the device is on the device, and that of an input on the host is on the host.
"""

from optdb.device.plans.linked import LinkedFunction, Node, PlanOptions, ValueId
from optdb.device.plans.machine import PlannedMachine

__all__ = ["LinkedFunction", "Node", "PlanOptions", "PlannedMachine", "ValueId"]
