"""Functions on a device run by plans: what they did once is done again without Python.

Flow of a call (``vm``): the shapes of the inputs, and where the shared arrays are, say which plan. For new ones the
nodes compute as ever, and a recorder writes down what they put into the queue. At the next call with the same, a
``plan`` is made of that: values get their places in one piece of memory, kernels their arguments, once. From then on a
call enqueues.

What a node does may depend on values that the host knows, and these may change: an index, a learning rate, classes.
``roles`` finds out, once for a function, which nodes that concerns. They are asked at each call whether something they
see has changed, and compute in Python if so; so do nodes whose arrays have moved because of that.

What a node leaves on the host is kept from one call to the next only where the plan owns it: where no variable that
may share its memory is an input, an output, a next value, or overwritten. All else is computed at each call. A
next value is where its input is, on the host or on the device.
"""

from optdb.opencl.planning.linking import install, uninstall
from optdb.opencl.planning.vm import PlannedVM

__all__ = ["PlannedVM", "install", "uninstall"]
