"""A state machine: shared variables that host functions and device functions use alternately, compared with NumPy.

- ``expressions``: the operations of functions, in Theano and in NumPy.
- ``specs``: a random function as data, and the strategies that draw it.
- ``model``: the effect of a call, in NumPy.
- ``functions``: a function compiled in one way, and its simulators.
- ``separate``: functions from files, with private state, and of variables on the device.
- ``machine``: the rules, and the comparisons after each step.

``python -m fuzzing.states`` makes many runs in several processes; ``tests/fuzzing`` makes some hundred.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
