"""The device that tests without a Theano graph compute on: one context for all of them."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

from optdb.runtime.context import Context
from optdb.runtime.context_options import BatchThresholds, ContextOptions

#: Each list of commands becomes a batch when it is enqueued again, even with a single call.
SMALLEST_BATCHES = BatchThresholds(times=1, calls=1)


def new_context(spec: str = "opencl", **options: Any) -> Context:
    """Return a separate context with some options, which batches small functions."""
    return Context(spec, ContextOptions(batch_thresholds=SMALLEST_BATCHES, **options))


def context_with_memory(shares_hosts: bool) -> Context:
    """Return a context that shares the host's memory (skip if the device does not), or counts as having its own."""
    context = new_context()
    if shares_hosts and not context.profile.shares_host_memory:
        pytest.skip(f"{context.profile.name} has memory of its own")
    context.profile = replace(context.profile, shares_host_memory=shares_hosts)
    return context


@functools.cache
def runtime_context() -> Context:
    return new_context()
