"""Scripts that measure PyMC models on PyTensor: mode OPENCL compared with PyTensor's default.

They run in the environment that ``make pytensor`` makes, without Theano.
"""
