"""``copy`` with copies of random states that have numbers of their own.

In NumPy 2 a shallow copy of a RandomState shares its generator, so that drawing from one moves the other.
"""

import copy as original
from typing import TypeVar

import numpy

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

T = TypeVar("T")

deepcopy = original.deepcopy


def copy(value: T) -> T:
    """Copy an object, not what it refers to; of a random state, its generator, too."""
    return deepcopy(value) if isinstance(value, numpy.random.RandomState) else original.copy(value)


__getattr__, __dir__ = fall_back_to(original, globals())
