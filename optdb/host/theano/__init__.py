"""Theano's side of the host. Importing this package imports nothing.

- ``importing``: makes ``import theano`` work with current versions of Python and NumPy.
- ``functions``: observes, copies and decomposes compiled functions.
- ``speedups``: faster replacements for Theano's functions.
- ``rewriters``: facts about Theano's rewriters.
- ``clinker``: C code in batches, and tiers.
- ``vectorized``: NumPy code for nodes without a C compiler.
"""
