"""Loop fusion on the device: elementwise ops become one kernel, and reductions compute what they fold.

`groups` finds what belongs together, and how a kernel sees arrays of other shapes; `build` makes the ops; `reductions`
is for what comes before and behind a reduction; `rewriters` is where Theano calls.
"""
