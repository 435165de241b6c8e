"""Scripts that measure how Theano optimizes real models, under stock and under optdb, and how they run on a device.

Read from the bottom up::

    models     symbolic training functions, each with the data to run it on
    ways       Theano's optimizer, or optdb's
    measure    a model's graph, optimized as theano.function would, against the clock
    interpret  runs an optimized graph with NumPy, without a compiler
    check      whether two optimized graphs compute the same values
    report     judges the figures;  screen, files: shows and writes them
    cli        what the command lines share
    compare, profile, lines
               the command lines: ``python -m profiles.compare --help``

and for what happens at run time::

    isolated   a function in a process of its own;  native: C functions by g++
    operations what is computed, by the device, Theano's C code and others
    stopwatch  who computes it how fast;  cold: how soon the first result is there
    training   a model on the device and on the host, step by step
    runtime, train
               the command lines

Data flows one way: a `Model` goes into ``measure``, its `Measurement` objects into ``check`` and
``report``, and those to the screen. Nothing here reaches into optdb's insides: only
public names are used.
"""

import sys

import optdb  # noqa: F401  cures Theano's import, so it has to come before the first `import theano`

# Theano clones and differentiates graphs by recursion, one level per node along the deepest path.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))
