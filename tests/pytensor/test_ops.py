"""Each op gives the same results on the device as with PyTensor's Python linker."""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

import optdb.pytensor
from tests.pytensor.comparing import compare, mode_of_kind, sort_on_host

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=(2, 7, 5))
LONG = RNG.normal(size=(60, 40))
V, W = RNG.normal(size=(2, 5))

x, y = pt.matrices("x", "y")
v, w = pt.vectors("v", "w")
i, j = pt.lscalars("i", "j")
index = pt.lvector("index")

UNARY = """
abs arccos arcsin arctan arctanh ceil cos cosh erf erfc exp expm1 floor gammaln log1mexp log1p log neg psi
reciprocal round_half_to_even sigmoid sign sin sinh softplus sqr sqrt tan tanh trunc tri_gamma
"""


@pytest.mark.parametrize("name", UNARY.split())
def test_unary_scalars(name):
    given = np.linspace(-0.9, 0.9, 23)
    if name in ("log", "sqrt", "gammaln", "psi", "tri_gamma"):
        given = given + 1.5
    if name == "log1mexp":
        given = given - 1.0
    compare([v], getattr(pt, name)(v), [given])


def test_scaled_bessel_functions_need_no_host():
    """Scaled Bessel functions occur in von Mises distributions and in periodic Gaussian processes."""
    given = np.concatenate([RNG.uniform(-80, 80, 20), [0, 1e5]])
    compare([v], [pt.ive(2, v), pytensor.grad(pt.ive(1, v).sum(), v)], [given])
    compare([v], pt.ive(v, 400.0), [np.arange(0.0, 120, 7)])
    dist_math = pytest.importorskip("pymc.distributions.dist_math")
    results = [pt.log(dist_math.i0e(v)), pytensor.grad(dist_math.i0e(v).sum(), v)]
    function = pytensor.function([v], results, mode="OPENCL")
    function(given)
    assert "host" not in optdb.pytensor.explain(function)
    compare([v], results, [given])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint16", "float32", "float64", "bool"])
def test_arithmetic_in_each_dtype(dtype):
    a, b = pt.vector("a", dtype=dtype), pt.vector("b", dtype=dtype)
    one = RNG.integers(0, 2, 37).astype(dtype)
    other = RNG.integers(1, 3 if dtype != "bool" else 2, 37).astype(dtype)
    results = [a + b, a * b, pt.maximum(a, b), pt.eq(a, b), pt.switch(a < b, a, b), a.sum(), a.max(), pt.all(a <= b)]
    if dtype != "bool":
        results += [a - b, a // b, a % b, a / b, (a * b).prod(), a.astype("float64"), a.mean()]
    compare([a, b], results, [one, other])


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1)])
@pytest.mark.parametrize(
    "given", [A, LONG, np.zeros((0, 3)), np.zeros((3, 0)), np.ones((1, 30))], ids=lambda a: str(a.shape)
)
def test_sums_and_products(axis, given):
    compare(
        [x], [pt.exp(x).sum(axis=axis), (x + 1).prod(axis=axis), pt.any(x > 1, axis=axis), x.mean(axis=axis)], [given]
    )


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_extremes(axis):
    with_nan = A.copy()
    with_nan[2, 3] = np.nan
    compare([x], [x.max(axis=axis), x.min(axis=axis), pt.abs(x).max(axis=axis)], [A], [LONG], [with_nan])


def test_an_extreme_of_nothing_is_an_error():
    f = pytensor.function([x], x.max(axis=0), mode="OPENCL")
    with pytest.raises(ValueError, match="no elements to reduce"):
        f(np.zeros((0, 3)))


def test_broadcasting():
    row, col = pt.row("row"), pt.col("col")
    results = [row + col, x * row - col, pt.exp(row) + x, (x * col).sum(axis=1)]
    compare([x, row, col], results, [A, V[None], A[:, :1]], [np.zeros((0, 5)), V[None], np.zeros((0, 1))])


def test_lengths_broadcast_where_the_types_say_so_alone():
    f = pytensor.function([x, y], x + y, mode="OPENCL")
    with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
        f(A, B[:1])
    with pytest.raises(ValueError, match="Incompatible"):
        f(A, B[:3])


def test_order_of_axes_and_shapes():
    t = pt.tensor3("t")
    given = RNG.normal(size=(3, 4, 5))
    results = [
        t.transpose(2, 0, 1),
        t.reshape((5, -1)),
        t.flatten(),
        (t * 2).flatten().reshape((4, 15)).T.sum(axis=0),
        t[:, ::-1].reshape((12, 5)),
        t.dimshuffle("x", 1, "x", 0, 2),
        t.shape[0] + t.shape[1],
        t.sum(axis=1, keepdims=True) / t,
        pt.zeros_like(t),
    ]
    compare([t], results, [given])


def test_strided_parts():
    results = [
        x[1:3], x[::-1, 1], x[-2], x[i], x[i:j], x[:, -1:0:-2], x[i, j], x[..., 2], x[5:1:-1, None], x[2:2], x[100:],
    ]  # fmt: skip
    compare([x, i, j], results, [A, 1, 3], [A, -2, 4], [LONG, 0, 30])


@pytest.mark.parametrize("given", [7, -8])
def test_a_single_index_out_of_bounds(given):
    f = pytensor.function([x, i], x[i], mode="OPENCL")
    with pytest.raises(IndexError, match="out of bounds"):
        f(A, given)
    np.testing.assert_array_equal(f(A, 6), A[6])


def test_strided_parts_set_and_incremented():
    results = [
        pt.set_subtensor(x[1:3], 2.0),
        pt.inc_subtensor(x[::2, 1], v[0]),
        pt.inc_subtensor(x[i], v),
        pt.set_subtensor(x[:, ::-2], y[:, ::2]),
        pt.inc_subtensor(pt.set_subtensor(x[0], v)[1:], y[1:]),
        pt.set_subtensor(x[5:1:-2, 1], v[:2]),
        pt.inc_subtensor(x[i:j], 1.0).sum(),
    ]
    compare([x, y, v, i, j], results, [A, B, V, 1, 3], [A, B, V, -1, 5])


INDICES = [np.array([0, 2, 2, -1, 4]), np.array([3]), np.zeros(0, "int64"), np.array([1, 1, 1, 1, 0, 0, -5])]


@pytest.mark.parametrize("taken", INDICES, ids=str)
@pytest.mark.parametrize("is_constant", [False, True])
def test_named_rows(taken, is_constant):
    named = pt.constant(taken) if is_constant else index
    results = [
        x[named],
        x[:, named],
        pt.exp(x[named]).sum(),
        x[named, named],
        x[named[:, None], named[None, :]],
        x[1:, named],
    ]
    results += [
        pt.inc_subtensor(x[named], 1.5),
        pt.inc_subtensor(x[:, named], v[0]),
        pt.set_subtensor(x[named], 2.0),
        pt.inc_subtensor(x[named], x[named] * 2),
        pt.inc_subtensor(x[named, named], v[named]),
        pt.grad(pt.sqr(v[named]).sum(), v),
    ]
    compare([x, v, index], results, [A, V, taken])


def test_rows_set_twice_have_the_last_value():
    rows = np.array([1, 3, 1, 1])
    compare([x, y], [pt.set_subtensor(x[rows], y[:4]), pt.set_subtensor(x[:, rows], y[:, :4])], [A, B])


def test_one_element_of_each_row():
    chosen = RNG.integers(0, 5, 7)
    p = pt.special.softmax(x, axis=1)
    picked = p[pt.arange(7), chosen]
    compare([x], [picked, pt.grad(pt.log(picked).sum(), x)], [A])


def test_an_index_that_a_call_gives_is_checked():
    f = pytensor.function([x, index], x[index].sum(), mode="OPENCL")
    assert f(A, np.array([0, 6, -7])) == pytest.approx(A[[0, 6, -7]].sum())
    for wrong in ([0, 7], [-8]):
        with pytest.raises(IndexError, match="out of bounds"):
            f(A, np.array(wrong))
    assert f(A, np.array([0, 6, -7])) == pytest.approx(A[[0, 6, -7]].sum())


def test_a_mask_is_left_to_the_host():
    mask = pt.bvector("mask").astype("bool")
    compare(
        [x, mask.owner.inputs[0]],
        x[mask].sum(axis=0),
        [A, np.arange(7, dtype="int8") % 2],
        [A, np.ones(7, "int8")],
        on_host=1,
    )


def test_constant_masks_are_indices_on_the_device():
    t = pt.tensor3("t")
    rows, columns, both = (RNG.random(shape) > 0.4 for shape in (7, 5, (7, 5)))
    columns[:2] = True, False
    cube = RNG.normal(size=(7, 5, 4))
    taken = [x[rows], x[:, columns], x[both], x[rows, 2], x[np.zeros(7, bool)], t[both], t[:, RNG.random((5, 4)) > 0.4]]
    changed = [
        *(pt.set_subtensor(x[both], 3.0), pt.set_subtensor(x[rows], x[0]), pt.inc_subtensor(x[:, columns], 2.0)),
        *(pt.inc_subtensor(t[both], 2 * t[both]), pt.set_subtensor(t[rows, :, 2], x[0]), x[rows].sum(axis=0)),
        *(pt.set_subtensor(x[np.zeros(7, bool)], 1.0), pytensor.grad(pt.sqr(x[both]).sum(), x)),
    ]
    compare([x, t], [*taken, *changed], [A, cube])
    with pytest.raises(IndexError, match="mask of shape"):
        pytensor.function([x], x[np.ones(4, bool)], mode="OPENCL")(A)


def test_constant_indices_are_looked_up_the_other_way_round():
    f = compare(
        [x, v],
        [
            *(pt.set_subtensor(x[[0, 0, 1]], x[3:6]), pt.inc_subtensor(x[[0, 0, 1]], x[3:6])),
            *(pt.set_subtensor(x[[[0, 1], [2, 3]]], x[:4].reshape((2, 2, -1))), pt.inc_subtensor(x[[-1, 2]], v)),
            *(pt.inc_subtensor(x[[0, 2, 4], [1, 2, 3]], v[:3]), pt.set_subtensor(x[:, [3, 1]], v[0])),
        ],
        [A, V[: A.shape[1]]],
    )
    assert "ScatterStore" not in optdb.pytensor.explain(f)


def test_constant_values_are_permuted_once():
    mask, rows = RNG.random((7, 5)) > 0.4, RNG.random(7) > 0.4
    known, whole = pt.constant(A[mask]), pt.constant(B[rows])
    empty = pt.empty((7, 5), dtype="float64")
    missing = pt.set_subtensor(empty[~mask], v[: (~mask).sum()])
    compare(
        [x, v],
        [
            *(
                pt.set_subtensor(missing[mask], known),
                pt.set_subtensor(x[mask], known),
                pt.inc_subtensor(x[mask], known),
            ),
            *(pt.set_subtensor(x[rows], whole), pt.set_subtensor(v[[0, 0, 2, 1]], pt.constant(A[0, :4]))),
        ],
        [A, LONG[0]],
    )


def test_joins_and_splits():
    a, b, c = pt.split(x, [2, 0, 5], n_splits=3, axis=0)
    results = [
        pt.concatenate([x, y, pt.exp(x)], axis=0), pt.concatenate([x, x[:, :0], y], axis=1), pt.stack([v, v * 2]),
        a, b, c,        pt.concatenate([[1.0], v, pt.cumsum(v)]), pt.join(0, a, c) * 2, pt.tile(v, 3), pt.repeat(v, 2),
    ]  # fmt: skip
    compare([x, y, v], results, [A, B, V])


def test_lengths_of_parts_have_to_agree():
    f = pytensor.function([x, y], pt.concatenate([x, y], axis=0), mode="OPENCL")
    with pytest.raises(ValueError, match="cannot be joined"):
        f(A, B[:, :3])


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("given", [A, LONG], ids=["short", "long"])
def test_cumulative_sums(axis, given):
    compare([x], [pt.cumsum(x, axis=axis), pt.cumprod(x, axis=axis), pt.exp(pt.cumsum(x, axis=axis)).sum()], [given])


def test_creation():
    results = [
        pt.eye(5, 7, 1), pt.arange(i, j, 2), pt.arange(j).astype("float64") / 3, pt.zeros((i, 3)), pt.alloc(v, 3, 5),
        pt.diag(x), pt.diagonal(x, offset=1), pt.diag(v), pt.tril(x), pt.triu(x, 1), pt.linspace(0, 1, 5),
    ]  # fmt: skip
    compare([x, v, i, j], results, [A, V, 1, 8], [A[:5], V, 3, 4])


@pytest.mark.parametrize(
    "shape",
    [(7, 5, 3), (40, 60, 1), (1, 60, 30), (50, 100, 40), (3, 0, 4), (400, 3, 2), (2, 400, 3), (1, 9, 1)],
    ids=str,
)
def test_products(shape):
    n, k, m = shape
    left, right = RNG.normal(size=(n, k)), RNG.normal(size=(k, m))
    results = [x @ y, pt.tanh(x @ y).sum(), y.T @ x.T, x @ y[:, 0] if m else x.sum(), pt.grad(pt.sqr(x @ y).sum(), x)]
    compare([x, y], results, [left, right])


@pytest.mark.parametrize("rows", [1, 5, 300])
def test_a_linear_model_and_its_gradient(rows):
    design, weights = RNG.normal(size=(rows, 37)), RNG.normal(size=37) / 5
    chance = pt.sigmoid(x @ v)
    logp = pt.log(chance).sum() + pt.switch(pt.all(chance > 0), 0, -np.inf)
    compare([x, v], [logp, pt.grad(logp, v), pt.grad(logp, x)], [design, weights], [design, -weights])


def test_batched_products():
    s, t = pt.tensor3("s"), pt.tensor4("t")
    first, second = RNG.normal(size=(4, 6, 20)), RNG.normal(size=(2, 4, 20, 3))
    compare(
        [s, t],
        [pt.matmul(s, t), pt.matmul(s, s.transpose(0, 2, 1)), pt.matmul(t.transpose(0, 1, 3, 2), t)],
        [first, second],
    )


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_products_of_integers(dtype):
    s, t = pt.tensor("s", shape=(None, None), dtype=dtype), pt.tensor("t", shape=(None, None), dtype=dtype)
    u = pt.tensor("u", shape=(None, None, None), dtype=dtype)

    def values(*shape):
        if dtype == "bool":
            return RNG.integers(0, 2, shape).astype(bool)
        limits = np.iinfo(dtype)
        return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)

    given = [
        [values(m, k), values(n, k), values(3, k, k)] for m, k, n in [(17, 40, 9), (30, 20, 1), (1, 33, 5), (3, 5, 4)]
    ]
    given += [[values(0, 4), values(3, 4), values(0, 4, 4)], [values(2, 0), values(3, 0), values(2, 0, 0)]]
    compare([s, t, u], [s @ t.T, pt.matmul(u, u)], *given)


def test_checks_are_computed_on_the_device():
    positive = Assert("x has to be positive")(x, pt.all(x > 0))
    f = compare([x], [pt.log(positive).sum(), x * 2], [np.abs(A)])
    with pytest.raises(AssertionError, match="has to be positive"):
        f(A)
    assert f(np.abs(A))[0] == pytest.approx(np.log(np.abs(A)).sum())


def test_graphs_within_ops():
    results = [
        pt.special.softmax(x, axis=1),
        pt.special.log_softmax(x, axis=0),
        pt.logsumexp(x, axis=1),
        pt.logaddexp(x, y),
    ]
    compare([x, y], [*results, pt.grad(pt.special.log_softmax(x, axis=1)[:, 0].sum(), x)], [A, B], [LONG, LONG[::-1]])


@pytest.mark.parametrize(
    ("shape", "axis", "kernels"),
    [((200, 30), 1, 1), ((30, 200), 0, 1), ((150, 9, 20), (1, 2), 1), ((20, 150, 2), (0, 2), 1), ((1, 40), 1, 4)],
)
@pytest.mark.parametrize("softmax", [pt.special.softmax, pt.special.log_softmax])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_of_many_rows_is_one_kernel_on_a_gpu(softmax, shape, axis, kernels, dtype):
    x = pt.tensor("x", dtype=dtype, shape=(None,) * len(shape))
    values = (10 * RNG.normal(size=shape)).astype(dtype)
    special = values.copy()
    special[0] = -np.inf
    special[-1, ..., 1] = np.nan
    special[-1, ..., 0] = np.inf
    f = compare([x], softmax(x, axis=axis), [values], [special], mode=mode_of_kind("gpu"))
    ((_, traced),) = f.vm.jit_fn.function.traced_calls
    copies = 0 if axis in (1, (1, 2)) else 2
    assert len(traced.nodes) <= kernels + copies


@pytest.mark.parametrize("lower", [True, False])
def test_factors_and_solutions(lower):
    s = pt.tensor3("s")
    matrix = LONG[:5] @ LONG[:5].T
    batch = np.stack([matrix, 2 * matrix, matrix + np.eye(5)])
    factor = pt.linalg.cholesky(x, lower=lower)
    results = [
        factor,
        pt.linalg.solve_triangular(factor, v, lower=lower),
        pt.linalg.solve_triangular(factor, x, lower=lower, trans=1),
        pt.linalg.cholesky(s, lower=lower),
        pt.linalg.solve_triangular(pt.linalg.cholesky(s, lower=lower), x, lower=lower),
        pt.grad(pt.log(pt.diagonal(factor)).sum(), x),
    ]
    compare([x, v, s], results, [matrix, V, batch])


def test_what_has_no_factor_or_solution_is_nan():
    singular = np.diag([1.0, 0.0, 2.0])
    results = [pt.linalg.cholesky(x), pt.linalg.solve_triangular(x, v, lower=True)]
    compare([x, v], results, [singular, V[:3]], [-np.eye(3), V[:3]], [np.eye(3), V[:3]])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "bool", "uint8"])
def test_sorts_and_searches(dtype):
    y, values = pt.tensor3("y", dtype=dtype), pt.matrix("values")
    given = (RNG.normal(size=(5, 7, 3)) * 4).astype(dtype)
    if dtype.startswith("float"):
        given[1, 2], given[3, :, 1] = np.nan, -np.inf
    row = pt.sort(y[0, :, 0])
    results = [
        *(pt.sort(y, axis=axis) for axis in (0, 1, -1, None)),
        *(pt.argmax(y, axis=axis) for axis in (0, 1, -1, None, (0, 2))),
        pt.argmin(y, axis=1) if dtype != "bool" else pt.argmax(y),
        *(pt.searchsorted(row, values, side=side) for side in ("left", "right")),
        pt.sort(y, axis=0)[1:, ::-1].sum(0),
    ]
    compare([y, values], results, [given, A], [given[:, :, :0:-1], A[:0]])


def test_orders_are_stable():
    given = np.array([3.0, 1.0, np.nan, 1.0, -0.0, 3.0, 0.0, np.nan])
    order = pytensor.function([v], pt.argsort(v), mode="OPENCL")(given)
    np.testing.assert_array_equal(order, np.argsort(given, kind="stable"))
    distinct = RNG.permutation(24).reshape(4, 6).astype(float)
    compare([x], [pt.argsort(x, axis=axis) for axis in (0, 1, None)], [distinct], [distinct[:, :0]])


def test_the_gradient_of_a_sort():
    compare([x], pt.grad((pt.sort(x, axis=0) ** 2 * pt.arange(x.shape[0])[:, None]).sum(), x), [A])


def test_searches_of_no_elements_and_with_a_sorter():
    compare([v, x], [pt.searchsorted(v, x), pt.searchsorted(v[:0], x)], [np.sort(V), A], [V[:0], A])
    f = compare([v], pt.searchsorted(v, v * 2, sorter=pt.argsort(v)), [V], on_host=1)
    assert "checks a sorter" in optdb.pytensor.explain(f)
    with pytest.raises(ValueError, match="no elements"):
        pytensor.function([x], pt.argmax(x, axis=0), mode="OPENCL")(A[:0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_fourier_transforms(dtype):
    y = pt.matrix("y", dtype=dtype)
    spectrum = pt.fft.rfft(y)
    restored = pt.fft.irfft(spectrum, is_odd=True)
    results = [spectrum, restored, pt.fft.rfft(y, "ortho"), pt.grad((spectrum**2).sum() + restored.prod(), y)]
    compare([y], results, [A[:, :5].astype(dtype)], [RNG.normal(size=(3, 9)).astype(dtype)], rtol=1e-9)


def test_ops_without_a_kernel_run_on_the_host():
    f = compare([x], [sort_on_host(pt.exp(x), axis=0) * 2, x.sum()], [A], [LONG], on_host=1)
    (step,) = f.vm.jit_fn.function.traced_calls[0][1].host_steps
    assert step.moved_nbytes == 2 * A.nbytes


def test_values_of_each_rank_and_size():
    t = pt.scalar("t")
    compare([t], [pt.exp(t), t + 1, t], [np.asarray(0.5)], [np.asarray(np.inf)])
    compare([v], [v[:0].sum(), pt.exp(v), v.sum()], [V], [np.zeros(0)], [RNG.normal(size=1000)])


def test_arrays_of_any_strides():
    compare([x, v], [x.sum(axis=0) + v.sum(), x * 2], [LONG.T, V[::-1]], [LONG[::3, ::-2], V[::2]])
