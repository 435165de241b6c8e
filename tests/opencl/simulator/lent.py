"""Makes arrays that are large enough to be used in place, and counts copied bytes."""

from __future__ import annotations

import numpy as np
import theano.tensor as tt

from optdb.runtime import host_buffers
from tests.opencl.simulator.made import simulated

N = 3 * host_buffers.MIN_ZERO_COPY_BYTES // 4  # numbers of 4 bytes: enough for zero-copy


class Moved:
    """Counts the bytes that are copied between host arrays and device arrays."""

    def __init__(self, copy):
        self._copy = copy
        self.up = self.down = 0

    def __call__(self, queue, target, source, **kwargs):
        self.up += source.nbytes if isinstance(source, np.ndarray) else 0
        self.down += target.nbytes if isinstance(target, np.ndarray) else 0
        return self._copy(queue, target, source, **kwargs)

    def take(self):
        """Return the bytes copied to the device and from it since the last call."""
        found = self.up, self.down
        self.up = self.down = 0
        return found


def numbers(seed=0, shape=N):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype("float32")


def called(sim, *args, times=3):
    """Call a simulator several times: the first call records commands, and the second call makes the plan."""
    for _ in range(times):
        result = sim(*args)
    return result


def doubled():
    x = tt.fvector("x")
    return simulated([x], x * 2 + 1)
