"""Reductions over axes: sums, products, extrema and others.

A reduction can compute its elements from elements of several arrays without storing them, and can apply an epilogue to
each result. `folds` has the scalars that combine two elements, `code` generates the kernels, `plan` chooses and
launches kernels, and `reduction` is the operation.
"""
