"""Builds the C code of Theano's ops in batches, and loads existing modules without a compiler.

Modules have Theano's keys, source code and flags, so that Theano without optdb can use the same compiledir.
"""
