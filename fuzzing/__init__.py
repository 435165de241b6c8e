"""Random functions with parts on the host and on the device, against Theano without any optimization.

- ``operations``: what a random graph is made of.
- ``programs``: a random function and the calls of it, as data that builds graphs and prints as a script.
- ``strategies``: Hypothesis strategies that draw programs.
- ``ways``: the ways in which optdb computes a function: mode OPENCL, simulators, loops of calls, exported files.
- ``comparing``: one program computed in one way, compared call by call.
- ``files``: exported files altered at random, by a command of its own, ``python -m fuzzing.files``.

``python -m fuzzing`` runs many examples in several processes; ``tests/fuzzing`` runs some hundred. All numbers are
small integers, in floating point too, so every operation is exact and results are compared for equality.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
