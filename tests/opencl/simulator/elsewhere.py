"""Contains a function for other processes, which import optdb before Theano because they import this module."""

from __future__ import annotations

import os
import pickle

import optdb  # noqa: F401


def answers(data, batch, times):
    """Return the id of this process, and results of a pickled simulator."""
    sim = pickle.loads(data)
    return os.getpid(), [float(sim(batch)) for _ in range(times)]
