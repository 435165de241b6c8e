"""Kernels, their programs and launches, and array operations built from kernels, for any host framework.

Nothing here depends on Theano: functions take dtypes, ranks and numbers, and return kernels and launches. A test
asserts that the package imports only :mod:`optdb.runtime`.
"""
