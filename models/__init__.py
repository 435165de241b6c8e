"""Runs unmodified models of other libraries (Keras, Lasagne, PyMC3) under stock Theano, the engine and the device.

The way of the data::

    zoo ──────▶ registry ──▶ worker ───────▶ runner ─────▶ report
    builders    names and    one model in    processes,    tables, JSON,
                flags        a process       time limits   exit status
                             │
                             ways: how a model is compiled;  values: whether results agree;  timing: seconds of a step

`build` gives a model by name for other programs, too: the same `profiles.models.Model` that the scripts in profiles/
work with. `python -m models --help` says how to run the comparison; `make models` makes the virtual environment first.
"""

from models.registry import Entry, UnavailableLibrary, UnknownModel, available, build, entry, known

__all__ = ["Entry", "UnavailableLibrary", "UnknownModel", "available", "build", "entry", "known"]
