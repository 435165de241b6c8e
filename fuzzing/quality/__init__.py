"""Optimizes random models with stock Theano and with optdb's engine, and compares the sizes of the graphs.

`nets` draws stacks of layers as Keras writes them in Theano, with a loss and an optimizer. `densities` draws log
densities as PyMC3 writes them, with their gradients. `recurrences` draws sums and products that grow with each step.
`comparing` counts nodes. `python -m fuzzing.quality --help` shows how to run it.
"""
