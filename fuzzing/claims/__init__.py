"""Random functions whose types claim what values break, and arguments that lie in memory in odd ways.

- ``arguments``: the same values as arrays of other byte order, layout, dtype or class, and what no function takes.
- ``operations``: steps of a graph, among them those that break the promise of a broadcastable axis.
- ``cases``: a function and the calls of it, as data that builds graphs and prints as a script.
- ``strategies``: Hypothesis strategies that draw cases.
- ``ways``: mode OPENCL, a simulator, its ``call_n_times``, an exported file.
- ``comparing``: one case computed in one way, compared call by call.

A way has to compute what Theano computes in Python, or to raise an error; where Theano computes, only the error that
names the broken promise will do. What belongs to the caller must never change.
"""

import optdb  # noqa: F401  (Theano can be imported from here on)
