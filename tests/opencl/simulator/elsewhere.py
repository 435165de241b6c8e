"""What other processes do with a simulator; they import optdb before Theano."""

from __future__ import annotations

import os
import pickle

import optdb  # noqa: F401


def answers(data, batch, times):
    """Return the process, and what it makes of a pickled simulator."""
    sim = pickle.loads(data)
    return os.getpid(), [float(sim(batch)) for _ in range(times)]
