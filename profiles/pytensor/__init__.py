"""Scripts that measure PyMC models on PyTensor: mode OPENCL compared with PyTensor's default.

Read from the bottom up::

    models     twelve PyMC models with seeded data, each with a size
    gallery    small PyMC models of many kinds
    densities  a model's log density and its gradient as a compiled function, and points to evaluate it at
    sides      who compiles it: the default (numba), OPENCL, JAX
    values, speed, starts, crossover, overhead, breadth
               the command lines: ``python -m profiles.pytensor.values --help``

They run in the environment that ``make pytensor`` makes, without Theano.
"""
