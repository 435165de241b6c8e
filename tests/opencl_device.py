"""The device that tests without a Theano graph compute on: one context for all of them."""

from __future__ import annotations

import functools
from typing import Any

from optdb.runtime.context import Context
from optdb.runtime.context_options import BatchThresholds, ContextOptions

#: Each list of commands becomes batches when it is enqueued again, even one of a single call.
SMALLEST_BATCHES = BatchThresholds(times=1, calls=1)


def new_context(spec: str = "opencl", **options: Any) -> Context:
    """Return a context of its own, which has some options, and batches small functions."""
    return Context(spec, ContextOptions(batch_thresholds=SMALLEST_BATCHES, **options))


@functools.cache
def runtime_context() -> Context:
    return new_context()
