"""Runs Theano's ops on whole arrays with NumPy, for nodes without C code.

Theano's own ``perform`` methods loop over elements in Python for many ops.
"""
