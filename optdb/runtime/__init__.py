"""The runtime of the OpenCL device: devices, contexts, arrays.

Nothing here imports the rest of optdb or Theano: a plan needs only NumPy and PyOpenCL to
run. Importing this package imports neither; its modules do.
"""
