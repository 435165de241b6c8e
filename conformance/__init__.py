"""Runs the test suites of Theano and PyTensor (the hosts) as tests of optdb's engine.

Every suite file runs with stock Theano and again with the engine enabled, each time in a separate process on this
machine. The results are compared test by test: a test that passes with stock Theano must pass with the engine.
"""
