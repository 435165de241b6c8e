"""Makes Theano's modules work with current versions of Python, NumPy and SciPy when they are imported.

Theano 1.0.5 was written for Python 3.9 and NumPy 1.19. The modules here transform its source before it is compiled, and
that of the libraries that `libraries` lists. Files on disk and other modules are not changed.
"""
