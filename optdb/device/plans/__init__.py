"""Runs functions on a device with plans; a plan repeats the commands of a recorded call without running Python.

A front end passes a :class:`LinkedFunction`; hashable objects of the front end identify its values.
The shapes of the inputs and the buffers of the shared arrays select a plan (``machine``). If there is none, the nodes
run one by one, and a recorder keeps the commands that they enqueue. The next call with the same key makes a ``plan``
from the recording: it assigns buffers and sets kernel arguments once. From then on, a call only enqueues the commands
of the plan's ``steps``. A next value is on the same side as its input, either host or device.
"""

from optdb.device.plans.graph import Node, ValueId
from optdb.device.plans.linked import LinkedFunction, PlanOptions
from optdb.device.plans.machine import PlannedMachine

__all__ = ["LinkedFunction", "Node", "PlanOptions", "PlannedMachine", "ValueId"]
