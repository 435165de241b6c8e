"""Random Composites give the same results in NumPy and in C code."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from theano import scalar as ts

from fuzzing import scalars
from fuzzing.scalars import Case, Differs, Step

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")]


def test_some_composites():
    assert scalars.run(0, 16) > 1000


def test_a_difference_is_described():
    x = np.array([0.5, 2.0])
    case = Case(("float64",), (Step(ts.sqr, (0,)), Step(ts.neg, (1,))), (1,), {}, ((False,),), (x,))
    assert scalars.check(case, [-x * x]) == 2
    with pytest.raises(Differs, match=r"(?s)v1 = sqr\(0,\).*v2 at \(1,\) of v1 = 4\.0.*-4\.0 by NumPy, 5\.0 by C"):
        scalars.check(case, [np.array([-0.25, 5.0])])
    with pytest.raises(Differs, match="float32"):
        scalars.check(case, [np.array([-0.25, -4.0], "float32")])


def test_layouts_are_copied():
    array = np.arange(24.0).reshape(4, 6)
    for view in (array[::-1], array[:, ::2], array.T, array[:0], np.broadcast_to(array[:1], (3, 6))):
        case = Case(("float64",), (Step(ts.neg, (0,)),), (0,), {}, ((False, False),), (view,))
        (copy,) = case.copies()
        np.testing.assert_array_equal(copy, view)
        assert copy.strides == view.strides or not view.size
