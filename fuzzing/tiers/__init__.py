"""A state machine: tiered functions in every state, called by threads and interrupted, with real compilers.

- ``functions``: ops whose C code is never built in advance, and functions of these ops, compiled with tiers in several
  ways.
- ``gate``: makes compilers wait until a run lets them start.
- ``machine``: the rules and the invariants.

``python -m fuzzing.tiers`` makes many runs in several processes; ``tests/fuzzing`` makes some.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
