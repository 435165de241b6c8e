"""Random functions whose values violate their types, and arguments with odd memory layouts.

A way has to return the same results as Theano in Python, or raise an error. Where Theano returns a result, a way may
only raise the error that names the violated promise. Objects of the caller must never change.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
