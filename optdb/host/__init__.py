"""The host: the compiler that optdb plugs into, Theano 1.0.5.

This is the only folder that imports Theano. The rest of the package takes its words from
here, so that another host can be put in its place. Importing this package imports nothing.
"""
