"""A state machine that calls tiered functions in every state, in threads and with interrupts, with real compilers."""

import optdb  # noqa: F401  (Theano can be imported from here on)
