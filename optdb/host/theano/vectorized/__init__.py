"""What the host's ops compute by whole arrays, with NumPy, where a node has no C code.

Theano's own ``perform`` methods loop over elements in Python for fused scalar graphs, convolutions, pooling and more.
The modules here compute the same values with NumPy's ufuncs and BLAS: one module for each family of ops.

- `registry` finds the function of an Apply node;
- `plug` is the one hook, in the making of Python thunks, and has the rule of when it applies;
- `scalar_kernels` has a function of arrays for each scalar op, with the semantics of its C code;
- `programs` translates scalar ops and Composites to sequences of these, and `elementwise` runs them block by block.
"""
