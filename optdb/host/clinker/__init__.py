"""Builds the C code of Theano's ops in batches, and finds what was built before without a compiler.

Theano compiles one module for each kind of node, one after another, under a lock for its whole compiledir. Here

- `signatures` tells which nodes of a graph are computed by the same C code, and `linking` does for all of them at once
  what Theano does for each: generate the code, make its key, load its module;
- `collecting` walks a function and the inner functions of its Scans before the first thunk is made, so that everything
  that is missing is known together;
- `units` joins the source code of many modules in translation units, `outlining` shortens what they repeat, and
  `building` runs the compiler on as many units at once as there are processors;
- `store` puts each module into Theano's compiledir, in Theano's layout, in one step, and `cache` stands in for
  Theano's ModuleCache;
- `toolchain` remembers what was found out about the compiler, `extensions` builds the modules that Theano compiles for
  itself, `locks` has the locks, and `progress` tells a waiting user what is going on;
- `plug` puts all this in Theano's place, and takes it away again.

Each module keeps Theano's key and Theano's source code, and the compiler gets Theano's flags, so that a Theano without
optdb can use the same compiledir. Nothing here imports another room.
"""
