"""A state machine: shared variables that host functions and device functions use alternately, compared with NumPy."""

import optdb  # noqa: F401  (Theano can be imported from here on)
