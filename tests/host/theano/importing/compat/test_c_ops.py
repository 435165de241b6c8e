"""The C code of Theano's ops compiles with the current Python and NumPy, and agrees with the ops' Python code."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.mode import Mode
from theano.tensor.signal import pool

from tests.processes import output

pytestmark = pytest.mark.skipif(not theano.config.cxx, reason="there is no C++ compiler")

PY = Mode("py", None)
C = Mode("cvm", "fast_compile")


def numbers(shape, dtype, seed=0):
    """Return numbers of a dtype, which include negative numbers if the dtype has any."""
    draws = np.random.RandomState(seed).uniform(-9, 9, shape)
    if np.dtype(dtype).kind == "c":
        return (draws + 1j * numbers(shape, "float64", seed + 1)).astype(dtype)
    return (abs(draws) if np.dtype(dtype).kind in "ub" else draws).astype(dtype)


def assert_c_computes_what_python_does(inputs, outputs, values):
    wanted = theano.function(inputs, outputs, mode=PY, on_unused_input="ignore")(*values)
    compiled = theano.function(inputs, outputs, mode=C, on_unused_input="ignore")(*values)
    # Theano's C code rounds single-precision complex numbers before it adds double-precision ones.
    tolerance = 1e-4 if {value.dtype.char for value in values} & set("fF") else 1e-9
    for variable, value, expected in zip(outputs, compiled, wanted, strict=True):
        assert value.dtype == expected.dtype, variable
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance, err_msg=str(variable))


@pytest.mark.slow_cases("int8", "complex128")
@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "complex128"])
def test_rows_are_incremented_and_set(dtype):
    broadcastable = [(False,) * 3, (False, True, False), (True, False, False), (False, False), (True,), ()]
    shapes = [(4, 3, 2), (4, 1, 2), (1, 3, 2), (3, 2), (1,), ()]
    x, rows = tt.TensorType(dtype, (False,) * 3)("x"), tt.lvector("rows")
    ys = [tt.TensorType(dtype, pattern)() for pattern in broadcastable]
    outputs = [change(x[rows], y) for y in ys for change in (tt.inc_subtensor, tt.set_subtensor)]
    outputs.append(tt.inc_subtensor(x[:, ::-1, ::2][rows], ys[0][:, :, :1]))
    values = [numbers((5, 3, 2), dtype), np.array([1, -1, 1, 0])]
    assert_c_computes_what_python_does([x, rows, *ys], outputs, values + [numbers(s, dtype, 1) for s in shapes])


def test_rows_that_do_not_fit_are_refused_and_nothing_changes():
    x, y, rows = theano.shared(np.zeros((3, 2))), tt.dmatrix(), tt.lvector()
    f = theano.function([y, rows], [], updates=[(x, tt.inc_subtensor(x[rows], y))], mode=Mode("cvm", "fast_run"))
    for ones, wrong in [((2, 2), [0, 3]), ((2, 2), [0, -4]), ((3, 2), [0, 1]), ((2, 3), [0, 1])]:
        with pytest.raises((IndexError, ValueError), match=r"out of bounds|mismatch|not broadcastable"):
            f(np.ones(ones), wrong)
        assert not x.get_value().any()
    f(np.ones((0, 2)), np.zeros(0, "int64"))
    f(np.ones((3, 2)), [2, -1, 0])
    np.testing.assert_array_equal(x.get_value(), [[1, 1], [0, 0], [2, 2]])


@pytest.mark.slow_cases("max")
@pytest.mark.parametrize("mode", ["max", "sum", "average_inc_pad", "average_exc_pad"])
def test_pooling(mode):
    x, direction = tt.dtensor4("x"), tt.dtensor4("direction")
    pad = (0, 0) if mode == "average_exc_pad" else (1, 1)  # no Python code for this mode with padding
    pooled = pool.pool_2d(x, (2, 3), ignore_border=True, stride=(2, 2), pad=pad, mode=mode)
    slope = theano.grad((pooled**2).sum(), x)
    outputs = [pooled, slope, theano.grad((slope * direction).sum(), x)]
    if mode == "max":
        outputs.append(theano.gradient.Rop(pooled, x, direction))
    values = [numbers((2, 1, 5, 7), "float64"), numbers((2, 1, 5, 7), "float64", 1)]
    assert_c_computes_what_python_does([x, direction], outputs, values)


@pytest.mark.slow
def test_complex_numbers():
    x, y, rest = tt.zmatrix("x"), tt.dvector("y"), tt.cvector("rest")
    outputs = [x * y, x / rest, x - 2, -x, abs(x), tt.exp(x).sum(), tt.real(x) + rest, tt.eq(x, y), x.prod(), y + rest]
    values = [numbers((2, 3), "complex128"), numbers((3,), "float64"), numbers((3,), "complex64", 5)]
    assert_c_computes_what_python_does([x, y, rest], outputs, values)


@pytest.mark.slow
def test_a_new_process_imports_scan_without_a_warning():
    code = "import optdb, theano.scan_module.scan_perform_ext as e; print(e.version)"
    assert float(output(code)) > 0
