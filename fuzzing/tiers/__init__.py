"""A state machine: tiered functions in every state, called by threads and interrupted, with real compilers."""

import optdb  # noqa: F401  (Theano can be imported from here on)
