"""The runtime of the OpenCL device: devices, contexts, arrays.

No module here imports Theano or the rest of optdb: running a plan needs only NumPy and PyOpenCL. Importing the package
itself imports neither NumPy nor PyOpenCL; importing its modules does.
"""
