"""``inspect`` with the function that Python 3.11 removed."""

import inspect
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

ArgSpec = namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(function: Callable[..., Any]) -> ArgSpec:
    """Return the names and defaults of a function's parameters."""
    spec = inspect.getfullargspec(function)
    if spec.kwonlyargs or spec.annotations:
        raise ValueError("Function has keyword-only parameters or annotations, use getfullargspec()")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


__getattr__, __dir__ = fall_back_to(inspect, globals())
