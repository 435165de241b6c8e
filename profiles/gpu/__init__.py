"""What a GPU does: ``steps`` times training steps of the product. The others need no Theano there.

``capture`` writes down, here, what a function launches: programs, buffers, and commands with their arguments, in one
file that is data alone. ``replay`` builds and runs such files where there are NumPy and PyOpenCL, and tells what they
take. ``rivals`` does the same work by CuPy and JAX.
"""
