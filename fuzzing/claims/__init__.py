"""Random functions whose values violate their types, and arguments with odd memory layouts.

Each way to compute a function (see `fuzzing.claims.ways`) has to return the same results as Theano's Python code, or
raise an error. If Theano returns a result, the only error that a way may raise is the one that names the violated
promise. The caller's arguments and results must never change.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
