"""Scripts that measure how Theano optimizes real models, under stock and under optdb.

``models``   build symbolic training functions, each with the data to run it on
``measure``  turns a model into the graph that ``theano.function`` would make and optimizes it, phase by phase, against the clock
``interpret`` and ``check``  run two optimized graphs on the model's data and say whether the values agree
``report``   judges the figures and writes them: a table, JSON, a plot
``compare``, ``profile``, ``lines``  the command lines, one per module: ``python -m profiles.compare --help``

Data flows one way: a `Model` goes into ``measure``, its `Measurement` objects into ``check`` and ``report``, and those to the screen.
Nothing here reaches into optdb's insides: only ``optdb.enable`` and ``optdb.disable`` are used.
"""

import sys

import optdb  # noqa: F401  cures Theano's import, so it has to come before the first `import theano`

# Theano clones and differentiates graphs by recursion, one level per node along the deepest path.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 50_000))
