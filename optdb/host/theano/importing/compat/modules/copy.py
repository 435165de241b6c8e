"""``copy`` with copies of random states that are independent.

In NumPy 2 a shallow copy of a RandomState shares its generator, so that drawing from the copy also advances the
original.
"""

import copy as original
from typing import TypeVar

import numpy

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

T = TypeVar("T")

deepcopy = original.deepcopy


def copy(value: T) -> T:
    """Make a shallow copy of an object; the generator of a random state is copied as well."""
    return deepcopy(value) if isinstance(value, numpy.random.RandomState) else original.copy(value)


__getattr__, __dir__ = fall_back_to(original, globals())
