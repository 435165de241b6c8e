"""Compares random functions under random switches with unoptimized Theano.

All numbers are small integers, even in floating point, so every operation is exact, and results must be equal.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
