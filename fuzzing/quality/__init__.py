"""Random models, each optimized by stock Theano and by optdb's engine, and the sizes of both graphs.

`nets` draws stacks of layers as Keras writes them in Theano, with a loss and an optimizer; `densities` draws log
densities as PyMC3 writes them, with their gradients; `recurrences` draws sums and products that grow with each step.
`comparing` counts nodes. `python -m fuzzing.quality --help` shows how to run it.
"""
