"""Runs unmodified models of other libraries (Keras, Lasagne, PyMC3) with stock Theano, the engine and a device.

Other programs can also `build` a model by name: a `profiles.models.Model`, like the models of the scripts in profiles/.
"""

from models.registry import Entry, UnavailableLibrary, UnknownModel, available, build, entry, known

__all__ = ["Entry", "UnavailableLibrary", "UnknownModel", "available", "build", "entry", "known"]
