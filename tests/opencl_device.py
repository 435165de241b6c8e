"""Makes contexts for tests without Theano graphs; most of these tests share one context."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

from optdb.runtime.context import Context
from optdb.runtime.context_options import BatchThresholds, ContextOptions

#: With these thresholds, a command list of any length becomes a batch when it is enqueued for the second time.
SMALLEST_BATCHES = BatchThresholds(times=1, calls=1)


def new_context(spec: str = "opencl", **options: Any) -> Context:
    """Return a new context with the given options, which makes batches even of short command lists."""
    return Context(spec, ContextOptions(batch_thresholds=SMALLEST_BATCHES, **options))


def context_with_memory(shares_hosts: bool) -> Context:
    """Return a context that shares the host's memory (skip the test if it cannot), or seems to have its own memory."""
    context = new_context()
    if shares_hosts and not context.profile.shares_host_memory:
        pytest.skip(f"{context.profile.name} has memory of its own")
    context.profile = replace(context.profile, shares_host_memory=shares_hosts)
    return context


@functools.cache
def runtime_context() -> Context:
    return new_context()
