"""If values violate their types or arguments are unusual, functions behave as in Theano, or raise certain errors."""

from __future__ import annotations

import numpy as np
import pytest

from fuzzing.claims.arguments import ALIGNED, KINDS, argument
from fuzzing.claims.cases import Call, Case, Step
from fuzzing.claims.comparing import Differs, compare
from fuzzing.claims.operations import SLOW
from fuzzing.claims.ways import WAYS, OnHost
from fuzzing.claims.worker import run
from tests.effort import examples

#: The number of examples of each kind; ``python -m fuzzing.claims`` runs any number.
EXAMPLES = {"mode": 40, "simulator": 40, "loop": 30, "file": 15}


@pytest.mark.parametrize("way", WAYS)
def test_what_types_claim_and_values_break(way):
    run(way, 0, examples(EXAMPLES[way]), without=SLOW)


PIECE = Case(
    inputs=("one",),
    steps=(Step("constant_piece", (0,), 0), Step("times", (4,))),
    outputs=((5, False),),
    updates=(),
    calls=(Call(2, (0, 0), ("plain",)),) * 3,
)


@pytest.mark.parametrize("way", WAYS)
def test_a_piece_of_length_0_of_a_broadcastable_axis(way):
    compare(PIECE, way)


def test_a_state_that_grows_without_bound_ends_a_case(monkeypatch):
    calls = []

    class Counted(OnHost):
        def call(self, arguments, times):
            calls.append(times)
            return super().call(arguments, times)

    # Each call squares the length of `state`: 2, 4, 16, 256, 65,536.
    case = Case(
        inputs=("one",),
        steps=(Step("on_diagonal", (1,)), Step("reshaped", (4,), (-1,))),
        outputs=((0, False),),
        updates=(("state", 5),),
        calls=(Call(2, (0, 0), ("plain",), times=3),) * 3,
    )
    monkeypatch.setitem(WAYS, "counted", lambda case, device: Counted(case, "FAST_COMPILE"))
    compare(case, "counted")
    assert calls == [3]


def test_a_product_that_numpy_would_broadcast_may_be_refused():
    case = Case(
        inputs=("column", "x", "row"),
        steps=(Step("head", (0,)), Step("ger", (6, 1, 4))),
        outputs=((7, False),),
        updates=(),
        calls=(Call(1, (0, 0), ("plain",) * 3),),
    )
    compare(case, "mode")


def test_a_broken_promise_may_be_refused():
    """A slice of a shared variable has length 0, but its type says 1; the host's optimized graph raises no error."""
    steps = (
        Step("taken_back", (3,)),
        Step("piece", (3,), 0),
        Step("increased", (2, 2)),
        Step("pieces_of_scan", (4, 6)),
    )
    case = Case(("x",), steps, ((7, False),), (), (Call(2, (0, 0), ("plain",), 1, None),))
    compare(case, "mode")


def test_a_difference_is_found(monkeypatch):
    class Wrong(OnHost):
        def call(self, arguments, times):
            return [result + 1 for result in super().call(arguments, times)]

    case = Case(("x",), (Step("times", (0,)),), ((4, False),), (), (Call(2, (0, 0), ("plain",)),))
    monkeypatch.setitem(WAYS, "wrong", lambda case, device: Wrong(case, "FAST_COMPILE"))
    with pytest.raises(Differs, match="wrong, call 0: seen"):
        compare(case, "wrong")


def test_an_overwritten_argument_is_found(monkeypatch):
    class Wrong(OnHost):
        def call(self, arguments, times):
            results = super().call(arguments, times)
            arguments[0].base[0] = 5
            return results

    case = Case(("x",), (Step("times", (0,)),), ((4, False),), (), (Call(2, (0, 0), ("strided",)),))
    monkeypatch.setitem(WAYS, "wrong", lambda case, device: Wrong(case, "FAST_COMPILE"))
    with pytest.raises(Differs, match="argument 0 is overwritten"):
        compare(case, "wrong")


@pytest.mark.parametrize("kind", list(KINDS)[: list(KINDS).index("broadcast")])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 2), (1, 4)])
def test_kinds_of_arguments_hold_the_values(kind, shape):
    value = np.resize(np.arange(2, dtype="float32"), shape)
    made = argument(kind, value)
    np.testing.assert_array_equal(np.asarray(made.value, "float32").reshape(shape), value)
    assert made.is_unchanged
    assert kind not in ALIGNED or not value.size or not made.value.flags.aligned
