"""Theano's side of the host. Importing this package imports nothing.

- ``importing``: what makes ``import theano`` work.
- ``functions``: compiled functions, observed, copied and decomposed.
- ``speedups``: faster replacements of Theano's functions.
- ``rewriters``: facts about Theano's rewriters.
- ``clinker``: C code in batches, and tiers.
- ``vectorized``: NumPy code for nodes without a C compiler.
"""
