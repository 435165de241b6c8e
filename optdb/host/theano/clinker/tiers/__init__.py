"""Tiered compilation: a function runs in Python while compilers build its C code.

``theano.function`` returns when the graph is optimized. Nodes whose modules exist run in C; other nodes run in Python
until their modules are built. Here

- `server` is the program that runs compilers at low priority, and ends them when its parent process dies; `runner`
  starts it and passes commands to it;
- `background` has the queue of missing modules, and the threads that build them in order of their nodes' run time;
- `thunks` runs a node in Python, and in C after its module is built;
- `machines` replaces the virtual machine of a function when its nodes change from Python to C;
- `turns` makes calls mutually exclusive, and defers SIGINT while a function overwrites shared variables;
- `linked` decides which nodes of a function start in Python, and builds Scan's loop, which Theano compiles for itself;
- `status` has `tier` and `wait`.
"""
