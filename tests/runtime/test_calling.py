"""optdb converts arguments as theano.function does."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.runtime.calling import Argument, Signature

X = Argument("x", "float32", (False, False), floats=True)
N = Argument("n", "int64", ())
RATE = Argument("rate", "float32", (), default=np.float32(0.5), floats=True)


def test_by_place_and_by_name():
    signature = Signature((X, N, RATE))
    x = np.ones((2, 3), "float32")
    for given in (signature.bind([x, 3], {}), signature.bind([], {"n": 3, "x": x}), signature.bind([x], {"n": 3})):
        assert given[0] is x
        assert given[1] == 3
        assert given[1].dtype == "int64"
        assert given[2] == 0.5
    assert signature.bind([x, 3, 0.25], {})[2] == 0.25


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ([], {"n": 3}, "f is missing its argument x, a matrix of float32"),
        ([1, 2, 3, 4], {}, "takes 3 arguments"),
        ([], {"y": 3}, "no argument 'y'"),
        ([np.ones((2, 2), "float32")], {"x": 3, "n": 2}, "got x twice"),
        ([np.ones(2, "float32"), 3], {}, "f, argument x: expected a matrix of float32, got an array of 1 dim"),
        ([np.ones((2, 2)), 3], {}, "cannot hold an array of float64 without loss"),
        ([np.ones((2, 2), "float32"), 3.5], {}, "f, argument n: .* cannot hold 3.5 without loss"),
        ([np.ones((2, 2), "float32"), "three"], {}, "argument n: expected a number of int64, got 'three'"),
    ],
)
def test_what_does_not_fit_is_named(args, kwargs, words):
    with pytest.raises(TypeError, match=words):
        Signature((X, N, RATE)).bind(args, kwargs, "f")


def test_casts():
    assert X.array([[1, 2]]).dtype == "float32"
    assert X.array(np.ones((1, 2), "float16")).dtype == "float32"
    assert np.isnan(X.array([[float("nan")]])).all()
    assert RATE.array(0.1) == np.float32(0.1)
    with pytest.raises(TypeError, match=r"0\.1"):
        Argument("rate", "float32", (), allow_downcast=False, floats=True).array(0.1)
    assert Argument("n", "int8", (), allow_downcast=True).array(3.7) == 3
    with pytest.raises(TypeError, match="without conversion"):
        Argument("n", "int8", (), strict=True).array(3)
    with pytest.raises(TypeError, match="without conversion, got one of float32"):
        Argument("n", "float64", (), strict=True).array(np.ones((), "float32"))


def test_lengths_that_are_1():
    row = Argument("r", "float32", (True, False))
    assert row.array(np.ones((1, 3), "float32")).shape == (1, 3)
    with pytest.raises(TypeError, match=r"lengths \(1, 'any'\)"):
        row.array(np.ones((2, 3), "float32"))


def test_results():
    assert Signature((), "single").result([7]) == 7
    assert Signature((), "list").result([7, 8]) == [7, 8]
    assert Signature((), "none").result([]) is None
    assert Signature((), "list", ("a", "b")).result([7, 8]) == {"a": 7, "b": 8}
    assert str(Signature((X, Argument("r", "int8", (True, False))))) == "(x: float32[:, :], r: int8[1, :])"
