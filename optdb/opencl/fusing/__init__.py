"""Loop fusion on the device: elementwise ops become one kernel, and reductions compute what they fold.

`frames` says how an array is seen from a kernel that works on another shape; `groups` finds what belongs together;
`build` makes the ops; `reductions` is for what comes before and behind a reduction; `rewriters` is where Theano calls.
"""
