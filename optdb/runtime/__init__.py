"""The run side of the OpenCL device: devices, contexts, arrays.

Nothing here imports the rest of optdb or Theano: what a plan needs to run is NumPy and
PyOpenCL. Importing this package imports neither; its modules do.
"""
