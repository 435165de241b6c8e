"""Which differences count."""

import numpy as np
import pytest

from profiles import check, measure, models, ways


@pytest.mark.parametrize(
    ("expected", "found", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.0, 2.2], 0.2 / 2.2),
        # 1e-9 is far below the largest element of its array, so its error is relative to a hundredth of that element.
        ([1e-9, 1.0], [3e-9, 1.0], 2e-7),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.0], [0.0, 1.0], 1.0),
        ([np.nan, np.inf, -np.inf, 1.0], [np.nan, np.inf, -np.inf, 1.0], 0.0),
        ([np.inf, 1.0], [-np.inf, 1.0], np.inf),
        ([np.inf, 1.0], [np.nan, 1.0], np.inf),
        ([1.0, 1.0], [np.nan, 1.0], np.inf),
        ([1.0], [1.0, 1.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_largest_error(expected, found, error):
    assert check.largest_error(np.array(expected), np.array(found)) == pytest.approx(error)


def test_integers_have_to_be_equal():
    assert check.largest_error(np.array([1, 2]), np.array([1, 2])) == 0
    assert check.largest_error(np.array([1, 2]), np.array([1, 3])) == np.inf


def test_dtypes_have_to_be_the_same():
    assert check.largest_error(np.float32([1]), np.float64([1])) == np.inf


@pytest.mark.parametrize(("dtype", "difference"), [("float64", 1e-8), ("float32", 1e-3)])
def test_agreement_depends_on_the_dtype(dtype, difference):
    expected = {"output 0": np.ones(2, dtype), "output 1": np.ones(2, dtype)}
    near = {**expected, "output 1": np.ones(2, dtype) + np.finfo(dtype).eps}
    far = {**expected, "output 1": np.asarray(np.ones(2) + difference, dtype)}
    assert check.compare(expected, near).agree
    agreement = check.compare(expected, far)
    assert not agreement.agree
    assert agreement.where == "output 1"
    assert agreement.error == pytest.approx(difference, rel=0.01)


def test_a_missing_value_is_no_agreement():
    assert not check.compare({"output 0": np.ones(1)}, {}).agree


def test_errors_that_nudged_inputs_explain_are_accepted():
    expected = {"output 0": np.ones(2), "update 0": np.array([1.0, 1e-17])}
    found = {"output 0": np.ones(2), "update 0": np.array([1.0, 1e-9])}
    chaotic = {"output 0": np.ones(2), "update 0": np.array([1.0, -1e-9])}
    calm = {"output 0": np.ones(2) + 1e-7, "update 0": np.array([1.0, 1e-12])}
    assert check.compare(expected, found, chaotic).agree
    assert not check.compare(expected, found, calm).agree
    # Each array has its own error bound, and output 0 is not chaotic.
    assert not check.compare(expected, {**found, "output 0": np.ones(2) + 1e-7}, chaotic).agree


@pytest.mark.slow
def test_inputs_of_nudged_evaluations_differ_and_keep_their_values():
    specification = measure.specify(models.build("transformer"))
    before = [spec.value.storage[0].copy() for spec in specification.inputs if spec.shared]
    way = ways.stock()
    values = check.evaluate(specification, measure.optimize(specification, way), way)
    nudged = check.of_nudged_inputs(specification, way)
    errors = [check.largest_error(values[name], nudged[name]) for name in values]
    # The gradient of a bias is zero, except for rounding errors; Adam divides the gradient by its magnitude.
    assert 1e-9 < max(errors) < 1e-3
    after = [spec.value.storage[0] for spec in specification.inputs if spec.shared]
    assert all(map(np.array_equal, before, after))


@pytest.mark.slow
def test_evaluation_starts_from_the_initial_state():
    specification = measure.specify(models.build("mlp", depth=1, width=4))
    way = ways.stock()
    results = [check.evaluate(specification, measure.optimize(specification, way), way) for _ in range(2)]
    assert check.compare(*results) == check.Agreement(True, 0.0, "nowhere")
