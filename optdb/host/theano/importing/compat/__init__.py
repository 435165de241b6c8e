"""Makes Theano's modules work with current versions of Python, NumPy and SciPy when they are imported.

Theano 1.0.5 was written for Python 3.9 and NumPy 1.19. This package transforms the source of Theano, and of the
libraries listed in `libraries`, before Python compiles it. Files on disk and other modules are not changed.
"""
