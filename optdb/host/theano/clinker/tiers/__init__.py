"""Tiered compilation: a function computes in Python while compilers build its C code.

``theano.function`` returns when the graph is optimized. Nodes whose modules exist use them; other nodes are computed in
Python until their modules are built. Here

- `server` is the program that runs compilers at low priority, and ends them when its parent process dies; `runner`
  starts it and passes commands to it;
- `background` has the queue of missing modules and the threads that build them, those of the slowest nodes first;
- `thunks` computes a node in Python, and in C after its module is built;
- `machines` exchanges the virtual machine of a function once all its nodes have changed over;
- `turns` makes calls exclude each other, and defers SIGINT while a function overwrites shared variables;
- `linked` decides which nodes of a function start in Python, and builds Scan's loop, which Theano compiles for itself;
- `status` has `tier` and `wait`.
"""
