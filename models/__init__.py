"""Runs unmodified models of other libraries (Keras, Lasagne, PyMC3) with stock Theano, the engine and a device.

Data flow::

    zoo ──────▶ registry ──▶ worker ───────▶ runner ─────▶ report
    builders    names and    one model in    processes,    tables, JSON,
                flags        a process       time limits   exit status
                             │
                             ways: how a model is compiled;  values: whether results agree;  timing: seconds of a step

Other programs can also `build` a model by name: a `profiles.models.Model`, like the models of the scripts in profiles/.
`python -m models --help` explains how to run the comparison; `make models` first makes the virtual environment.
"""

from models.registry import Entry, UnavailableLibrary, UnknownModel, available, build, entry, known

__all__ = ["Entry", "UnavailableLibrary", "UnknownModel", "available", "build", "entry", "known"]
