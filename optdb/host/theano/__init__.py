"""Modules that are specific to the host Theano. Importing this package imports nothing.

- ``importing``: makes ``import theano`` work with current versions of Python and NumPy.
- ``functions``: observes, copies and decomposes compiled functions.
- ``speedups``: faster replacements for Theano's functions.
- ``rewriters``: facts about Theano's rewriters.
- ``clinker``: compiles C code in batches, and runs functions in Python until their C code is built.
- ``vectorized``: NumPy code that runs nodes if there is no C compiler.
"""
