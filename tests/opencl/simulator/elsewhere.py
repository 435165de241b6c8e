"""Functions that use a simulator in other processes, which import this module, and thereby optdb before Theano."""

from __future__ import annotations

import os
import pickle

import optdb  # noqa: F401


def answers(data, batch, times):
    """Return the id of this process, and results of a pickled simulator."""
    sim = pickle.loads(data)
    return os.getpid(), [float(sim(batch)) for _ in range(times)]
