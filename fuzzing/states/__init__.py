"""A state machine: shared variables used by functions of the host and of a device in turn, against a model in NumPy.

- ``expressions``: what functions compute, for Theano and for NumPy.
- ``specs``: a random function as data, and the strategies that draw it.
- ``model``: what a call does, in NumPy.
- ``functions``: a function compiled in one way, and its simulators.
- ``separate``: functions from files, with private state, and of variables on the device.
- ``machine``: the rules, and what is compared after each step.

``python -m fuzzing.states`` makes many runs in several processes; ``tests/fuzzing`` makes some hundred.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
