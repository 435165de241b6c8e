"""Kernels, their programs and launches, and operations on arrays by families of kernels, for any host.

Nothing here depends on Theano: functions take dtypes, ranks and numbers, and return kernels and launches. The package
imports :mod:`optdb.runtime` alone, and a test asserts that.
"""
