"""A state machine: tiered functions in every state, called by threads and interrupted, with real compilers.

- ``functions``: ops whose C code is always missing, and functions of them, compiled with tiers in one of several ways.
- ``gate``: lets compilers begin when a run says so.
- ``machine``: the rules, and what holds after each step.

``python -m fuzzing.tiers`` makes many runs in several processes; ``tests/fuzzing`` makes some.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
