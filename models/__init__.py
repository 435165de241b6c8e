"""Runs unmodified models of other libraries (Keras, Lasagne, PyMC3) with stock Theano, the engine and a device.

Other programs can call `build` with a model's name. It returns a `profiles.models.Model`, which the scripts in
profiles/ use.
"""

from models.registry import Entry, UnavailableLibrary, UnknownModel, available, build, entry, known

__all__ = ["Entry", "UnavailableLibrary", "UnknownModel", "available", "build", "entry", "known"]
