"""Random functions whose values violate their types, and arguments with odd memory layouts.

- ``arguments``: the same values as arrays of other byte order, layout, dtype or class, and values that no function
  accepts.
- ``operations``: steps of a graph, some of which violate the promise of a broadcastable axis.
- ``cases``: a function and its calls, as data that builds graphs and prints as a script.
- ``strategies``: Hypothesis strategies that draw cases.
- ``ways``: mode OPENCL, a simulator, its ``call_n_times``, an exported file.
- ``comparing``: one case computed in one way, compared call by call.

A way has to return the same results as Theano in Python, or raise an error. Where Theano returns a result, a way may
only raise the error that names the violated promise. Objects of the caller must never change.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
