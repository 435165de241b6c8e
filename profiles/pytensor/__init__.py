"""Scripts that measure PyMC models on PyTensor, in mode OPENCL and in PyTensor's default mode.

The scripts run without Theano, in the environment that ``make pytensor`` creates.
"""
