"""Builds the C code of Theano's ops in batches, and loads modules that were built before without a compiler.

Each module keeps Theano's key and Theano's source code, and the compiler gets Theano's flags, so that a Theano without
optdb can use the same compiledir.
"""
