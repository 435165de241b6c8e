"""Makes Theano's modules work with current versions of Python, NumPy and SciPy when they are imported.

Theano 1.0.5 was written for Python 3.9 and NumPy 1.19. Theano's files on disk are not changed. The modules below
transform source code before it is compiled, but only in Theano and in the libraries that `libraries` lists:

- `versions` decides which of the layers below the installed versions need;
- `loader` compiles the translated source of Theano's modules, and caches the result on disk;
- `translation` rewrites the syntax tree: imports, and operators on numbers;
- `libraries` lists the other libraries that are translated: Lasagne, Keras, PyMC3 and others;
- `modules` has the targets of redirected imports: NumPy's former names, modules that Python dropped;
- `promotion` gives operators the result types of NumPy 1, by value, if NumPy 2 has others;
- `ccode` adds a header to Theano's C code;
- `installing` installs Theano if pip alone cannot build it.

Other modules are not affected: numpy, collections, inspect and ``sys.modules`` stay unchanged.
"""
