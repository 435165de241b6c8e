"""What a device computes, for any host: kernels, their programs and launches, and what families of them compute.

Nothing here knows of Theano: dtypes, ranks and numbers come in, and kernels and launches go out. It imports
:mod:`optdb.runtime` alone, and a test asserts that.
"""
