"""Sums, products, extremes and the like over axes.

A reduction can compute its elements from those of several arrays, without storing them, and can apply an epilogue to
each result: `folds` are what folds two elements into one, `code` generates the kernels, `plan` chooses and launches
them, and `reduction` is the operation.
"""
