"""Random functions under random switches, compared with unoptimized Theano.

All numbers are small integers, also in floating point, so every operation is exact and results must be equal.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
