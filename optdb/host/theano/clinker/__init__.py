"""Builds the C code of Theano's ops in batches, and loads modules that were built before without a compiler.

Theano compiles one module for each kind of node, one after another, under a lock for its whole compiledir. Here

- `signatures` identifies nodes that share their C code, and `linking` generates the code, computes its key and loads
  its module once for all of these nodes, where Theano does so for each node;
- `collecting` walks a function and the inner functions of its Scans before the first thunk is made, and gathers all
  missing modules;
- `units` joins the source code of many modules in translation units, `outlining` moves repeated code into shared
  functions, and `building` runs one compiler per processor;
- `store` writes modules atomically into Theano's compiledir, in Theano's layout, and `cache` replaces Theano's
  ModuleCache;
- `toolchain` caches properties of the compiler, `extensions` builds the modules that Theano compiles for itself,
  `locks` has file locks, and `progress` shows the progress of a compilation;
- `wrappers` wraps Theano's functions so that they use these modules; `plug` installs and removes the wrappers.

Each module keeps Theano's key and Theano's source code, and the compiler gets Theano's flags, so that a Theano without
optdb can use the same compiledir. Nothing here imports another package of optdb.
"""
