"""Random functions whose values violate their types, and arguments with odd memory layouts.

Each way to compute a function (see `fuzzing.claims.ways`) has to return the results of Theano's Python code, or raise
an error. If Theano's Python code returns a result, only an error that names the violated promise is accepted. The
caller's arguments and results must never change.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
