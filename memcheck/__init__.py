"""Runs every kernel of the OpenCL device under a memory checker.

Oclgrind (``pip install '.[oclgrind]'``) is an OpenCL device that interprets kernels. It logs out-of-bounds accesses,
data races, and barriers that only some work items of a group reach.
"""

import optdb  # noqa: F401  cures Theano's import, so it has to come before the first `import theano`
