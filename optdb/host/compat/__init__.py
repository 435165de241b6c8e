"""Makes Theano's modules work on today's Python, NumPy and SciPy, file by file as they are imported.

Theano 1.0.5 was written for Python 3.9 and NumPy 1.19. Its files stay as they are on disk; these modules
adapt them between the source and the compiled code, for the modules of Theano alone:

- `versions` says which of the layers below the versions at hand need;
- `finder` finds Theano's modules; `loader` compiles their translated source, and keeps the result on disk;
- `translation` rewrites the syntax tree: imports, and operators on numbers;
- `modules` holds the targets of redirected imports: NumPy's former names, modules that Python dropped;
- `promotion` gives operators the result types of NumPy 1, by value, where NumPy 2 has others;
- `ccode` adds a header to what Theano compiles;
- `installing` installs Theano where pip alone cannot build it.

No other module can see a difference: nothing is put into numpy, collections, inspect or ``sys.modules``.
"""
