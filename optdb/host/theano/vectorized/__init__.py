"""Computes Theano's ops on whole arrays with NumPy, for nodes without C code.

Theano's own ``perform`` methods loop over elements in Python for fused scalar graphs, convolutions, pooling and more.
The modules here compute the same values with NumPy's ufuncs and BLAS: one module for each family of ops.

- `registry` finds the function of an Apply node;
- `plug` contains the only hook, which replaces the making of Python thunks, and the rule for when it applies;
- `scalar_kernels` has a whole-array function for each scalar op, with the semantics of its C code;
- `ufunc_programs` translates scalar ops and Composites to sequences of these; `elementwise` runs them block by block.
"""
