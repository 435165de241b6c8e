"""A state machine that uses shared variables in host and device functions alternately, and compares them with NumPy."""

import optdb  # noqa: F401  (Theano can be imported from here on)
