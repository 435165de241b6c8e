"""The device that tests without a Theano graph compute on: one context for all of them."""

from __future__ import annotations

import functools

from optdb.runtime.context import Context


@functools.cache
def runtime_context() -> Context:
    return Context("opencl")
