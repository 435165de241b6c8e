"""Products by warpgroups: all indices by emulated instructions, when a device takes them, and all lengths on a GPU."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from optdb.codegen.gemm import tensor_cores, warpgroup_kernels, warpgroups
from optdb.codegen.gemm.launches import by_tiles, run, wide_total_kernel
from optdb.codegen.gemm.problem import Problem, steps
from optdb.codegen.gemm.tensor_kernels import TensorBlock
from optdb.codegen.gemm.warpgroup_kernels import WarpgroupBlock, kernel_name, warpgroup_kernel
from optdb.codegen.kernels import compile_kernels
from optdb.codegen.kernels.bodies import bodies_of
from optdb.codegen.kernels.programs import TranslationUnit
from optdb.runtime import tuning
from optdb.runtime.arrays import to_host
from optdb.runtime.context import Context
from optdb.runtime.errors import DeviceError
from tests.codegen.test_matmul import put
from tests.codegen.test_tensor_cores import FINE, ORDERS, check, product, sample

SMALL = WarpgroupBlock(64, 64)
ROWS, COLUMNS = ORDERS.values()


@functools.cache
def checker():
    """Return a context of Oclgrind, which finds races and what is out of bounds."""
    try:
        context = Context("oclgrind")
    except DeviceError as error:
        pytest.skip(str(error))
    context.profile = context.profile.as_kind("gpu", 1)
    return context


@functools.cache
def compiled(block):
    return compile_kernels([warpgroup_kernel(block, "emulated"), wide_total_kernel("float32")], checker())


def multiply(block, a, b, y, alpha=1.0, beta=0.0, layouts=(ROWS,) * 3, parts=1):
    """Return the product of batches of matrices, whose axes lie in some orders."""
    context, batch = checker(), y.shape[0]
    x, v, z = (put(context, value, *layout) for value, layout in zip((a, b, y), layouts))
    added = steps(z, batch)
    problem = Problem(batch, *y.shape[1:], a.shape[2], steps(x, batch), steps(v, batch), added, added, beta != 0)
    tiles = problem.tiles(block.rows, block.cols)
    plan = by_tiles(problem, kernel_name(block), tiles, block.items, parts, block.depth)
    run(plan, compiled(block), context, {"a": x, "b": v, "y": z, "z": z}, alpha, beta, "float32")
    return to_host(z)


def whole_numbers(*shape):
    """Return numbers whose products, and sums of some of them, float32 holds exactly."""
    return np.random.default_rng(sum(shape)).integers(-8, 9, shape).astype("float32")


_SLOW = pytest.mark.slow


@pytest.mark.parametrize("terms", [112, 128, 200])
def test_four_stages_at_a_time(terms):
    a, b, y = whole_numbers(1, 68, terms), whole_numbers(1, terms, 68), whole_numbers(1, 68, 68)
    np.testing.assert_array_equal(multiply(SMALL, a, b, y, layouts=(ROWS,) * 3), a @ b)


@pytest.mark.parametrize("left", [ROWS, COLUMNS], ids=ORDERS)
@pytest.mark.parametrize("right", [ROWS, COLUMNS], ids=ORDERS)
def test_whole_tiles(left, right):
    a, b, y = whole_numbers(1, 64, 96), whole_numbers(1, 96, 64), whole_numbers(1, 64, 64)
    np.testing.assert_array_equal(multiply(SMALL, a, b, y, layouts=(left, right, ROWS)), a @ b)


@pytest.mark.parametrize(("left", "right"), [(ROWS, ROWS), (COLUMNS, COLUMNS)], ids=ORDERS)
def test_rows_columns_and_terms_beyond_the_last(left, right):
    a, b, y = whole_numbers(1, 68, 40), whole_numbers(1, 40, 72), whole_numbers(1, 68, 72)
    got = multiply(SMALL, a, b, y, 1.5, 0.5, (left, right, ROWS))
    np.testing.assert_array_equal(got, 1.5 * (a @ b) + 0.5 * y)


@_SLOW
@pytest.mark.parametrize(
    "block",
    [WarpgroupBlock(64, 128), WarpgroupBlock(128, 64), WarpgroupBlock(128, 128)],
    ids=str,
)
@pytest.mark.parametrize("layout", [ROWS, COLUMNS], ids=ORDERS)
def test_other_shapes_of_tiles(block, layout):
    m, n = block.rows + 4, block.cols + 4
    a, b, y = whole_numbers(1, m, 20), whole_numbers(1, 20, n), whole_numbers(1, m, n)
    np.testing.assert_array_equal(multiply(block, a, b, y, layouts=(layout, layout, ROWS)), a @ b)


@pytest.mark.parametrize("right", [ROWS, COLUMNS], ids=ORDERS)
def test_numbers_that_are_not_aligned(right):
    a, b, y = whole_numbers(2, 65, 19), whole_numbers(1, 19, 35), whole_numbers(2, 65, 35)
    layouts = ((0, 1, 2), (1, 2, 1)), right, ((1, 0, 2), (1, -1, 2))
    np.testing.assert_array_equal(multiply(SMALL, a, b, y, -0.5, 2.0, layouts), -0.5 * (a @ b) + 2 * y)


def test_sums_are_cut_into_parts():
    a, b, y = whole_numbers(1, 33, 50), whole_numbers(1, 50, 34), whole_numbers(1, 33, 34)
    np.testing.assert_array_equal(multiply(SMALL, a, b, y, 2.0, 1.0, parts=3), 2 * (a @ b) + y)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_sums_of_no_terms(beta):
    a, b, y = sample(1, 33, 0), sample(1, 0, 34), sample(1, 33, 34)
    np.testing.assert_array_equal(multiply(SMALL, a, b, y, 1.0, beta), np.float32(beta) * y)


def test_numbers_are_rounded():
    a, b, y = sample(1, 40, 24), sample(1, 24, 72), sample(1, 40, 72)
    check(multiply(SMALL, a, b, y, 1.5, 0.5), a, b, y, 1.5, 0.5, "tf32")
    # Cutting bits off would make all of them less.
    ones = np.ones((1, 24, 40), "float32")
    a = np.full((1, 40, 24), 1 + 2.0**-11 + 2.0**-12, "float32")
    assert (multiply(SMALL, a, ones, np.zeros((1, 40, 40), "float32")) > (a @ ones)).all()


@pytest.mark.filterwarnings("ignore:invalid value")
def test_infinities_and_nans_go_where_they_do_elsewhere():
    a, b, y = sample(1, 40, 20), sample(1, 20, 36), sample(1, 40, 36)
    a[0, 3, 5], a[0, 20, 0], a[0, 39, 19], b[0, 7, 11] = np.inf, -np.inf, np.nan, np.inf
    a[0, 8, 8] = np.uint32(0x7F800001).view(np.float32)
    a[0, 9, 9] = np.uint32(0x7FFFFFFF).view(np.float32)
    b[0, 5, 2] = b[0, 0, 3] = 0
    got, want = multiply(SMALL, a, b, y), a.astype("float64") @ b.astype("float64")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])


# Which products


@pytest.fixture
def with_warpgroups(monkeypatch):
    """Return a context of a device that seems to have warpgroups; its kernels emulate them."""
    context = checker()
    quirks = replace(context.profile.quirks, takes_ptx=True, takes_changed_ptx=True)
    monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks, compute_capability=(9, 0)))
    emulated = functools.partial(warpgroup_kernel, instructions="emulated")
    monkeypatch.setattr(tensor_cores, "warpgroup_kernel", emulated)
    monkeypatch.setattr(warpgroups, "warpgroup_kernel", emulated)
    monkeypatch.setattr(warpgroups, "RATES", {SMALL: (9.0,)})
    monkeypatch.setattr(warpgroups, "_TRIAL", SMALL)
    monkeypatch.setattr(warpgroups, "_LENGTHS", (68, 72, 200))
    monkeypatch.setattr(warpgroup_kernels, "_LONG_SUM", 16)
    small = TensorBlock(32, 32, 16, 2, 16, 32)
    monkeypatch.setattr(tensor_cores, "_BLOCKS", dict.fromkeys(tensor_cores._BLOCKS, small))
    monkeypatch.setattr(tensor_cores, "rates_of", lambda _: {small: (1.0,)})
    monkeypatch.setattr(
        tensor_cores, "tensor_kernel", functools.partial(tensor_cores.tensor_kernel, instructions="emulated")
    )
    modules = tensor_cores.__name__, warpgroups.__name__
    for name in modules:
        monkeypatch.delitem(context.kept, name, raising=False)
    tuning.forget(_key(context))
    yield context
    for name in modules:
        context.kept.pop(name, None)
    tuning.forget(_key(context))


def _key(context):
    return tuning.key_of(context.device, "warpgroups", "float32", warpgroups._VERSION)


@pytest.fixture
def launched(monkeypatch):
    """Return a list, which gets the name of each kernel that multiplies."""
    names = []

    def recorded(plan, *rest):
        names.append(plan.launches[0].kernel)
        run(plan, *rest)

    monkeypatch.setattr(tensor_cores, "run", recorded)
    return names


def test_products_are_computed_by_warpgroups_after_a_trial(with_warpgroups, launched):
    a, b = sample(64, 20), sample(20, 68)
    got = product(with_warpgroups, a, b, "default")
    check(got, a, b, np.zeros(1), 1.0, 0.0, "tf32")
    assert tuning.load(_key(with_warpgroups)) == {"right": True} and launched == [kernel_name(SMALL)]


@pytest.mark.parametrize(("m", "k", "n"), [(64, 12, 68), (64, 18, 68), (64, 20, 66)])
def test_products_that_warps_compute_as_quickly(with_warpgroups, launched, m, k, n):
    a, b = sample(m, k), sample(k, n)
    product(with_warpgroups, a, b, "default")
    assert not any(name.startswith("warpgroups") for name in launched)


def test_a_device_that_fails_the_trial_multiplies_by_warps(with_warpgroups, launched, monkeypatch, caplog):
    monkeypatch.setattr(warpgroups, "warpgroup_kernel", warpgroup_kernel)  # Oclgrind takes no PTX
    a, b = np.full((64, 16), FINE), np.ones((16, 68), "float32")
    with caplog.at_level("INFO"):
        assert (product(with_warpgroups, a, b, "default") == 16).all()
    assert "warpgroups do not multiply" in caplog.text and launched[0].startswith("tensor_")
    assert tuning.load(_key(with_warpgroups)) == {"right": False}


def test_a_wrong_product_fails_the_trial(with_warpgroups, monkeypatch, caplog):
    monkeypatch.setattr(warpgroup_kernels, "ROUNDING", "2")
    with caplog.at_level("INFO"):
        assert not warpgroups.usable(with_warpgroups)
    assert "multiply wrongly" in caplog.text


def test_a_kernel_that_does_not_build_leaves_the_product_to_warps(with_warpgroups, launched, monkeypatch):
    assert warpgroups.usable(with_warpgroups)
    monkeypatch.setattr(tensor_cores, "warpgroup_kernel", warpgroup_kernel)
    a, b = np.full((64, 16), FINE), np.ones((16, 68), "float32")
    assert (product(with_warpgroups, a, b, "default") == 16).all()
    assert launched[0].startswith("tensor_")


@pytest.mark.parametrize(
    "changes", [{"compute_capability": (10, 0)}, {"compute_capability": (8, 0)}, {"compute_capability": None}]
)
def test_other_devices_do_not_try(with_warpgroups, monkeypatch, changes):
    monkeypatch.setattr(with_warpgroups, "profile", replace(with_warpgroups.profile, **changes))
    monkeypatch.setattr(warpgroups, "_kept_finding", None)
    assert not warpgroups.usable(with_warpgroups)


def test_files_take_no_changed_ptx(with_warpgroups):
    assert with_warpgroups.profile.has_warpgroups
    assert not with_warpgroups.profile.for_any_driver("gpu", 8).has_warpgroups


def test_other_kernels_do_not_run_them_as_a_part():
    kernel = warpgroup_kernel(SMALL)
    assert kernel.name == kernel_name(SMALL) == "warpgroups_64x64_tf32"
    assert not bodies_of(TranslationUnit(checker(), (kernel.code,), "a product")).kernels


def test_blocks_fit_a_gpu():
    for block in (*warpgroups.RATES, warpgroups._TRIAL):
        assert block.unsupported_reason() is None
        assert block.local_bytes <= 48 << 10 and block.items <= 1024


@pytest.mark.parametrize(
    "block",
    [
        WarpgroupBlock(96, 64),
        WarpgroupBlock(64, 32),
        WarpgroupBlock(64, 320),
        WarpgroupBlock(64, 192),
    ],
)
def test_blocks_that_there_cannot_be(block):
    assert block.unsupported_reason()


# On a GPU


@pytest.mark.slow
@pytest.mark.parametrize("block", [*warpgroups.RATES, warpgroups._TRIAL], ids=str)
def test_all_lengths_up_to_twice_a_tile_on_a_gpu(block):
    context = Context("opencl")
    if not warpgroups.usable(context):
        pytest.skip("the device has no warpgroups")
    rng = np.random.default_rng(1)
    for number in range(120):
        m, n, k = (int(rng.integers(1, 2 * length + 2)) for length in (block.rows, block.cols, 256))
        if number % 2:  # of pieces of 16 bytes
            m, n, k = (4 * -(-length // 4) for length in (m, n, k))
        a, b, y = sample(1, m, k), sample(1, k, n), sample(1, m, n)
        orders = [list(ORDERS.values())[number] for number in rng.integers(0, 2, 3)] if number % 3 else [ROWS] * 3
        x, v, z = (put(context, value, *order) for value, order in zip((a, b, y), orders))
        problem = Problem(1, m, n, k, steps(x, 1), steps(v, 1), steps(z, 1), steps(z, 1), True)
        kernels = [warpgroup_kernel(block), wide_total_kernel("float32")]
        name, tiles = kernel_name(block), problem.tiles(block.rows, block.cols)
        plan = by_tiles(problem, name, tiles, block.items, int(rng.integers(1, 4)), block.depth)
        arrays = {"a": x, "b": v, "y": z, "z": z}
        run(plan, compile_kernels(kernels, context), context, arrays, 1.5, 0.5, "float32")
        check(to_host(z), a, b, y, 1.5, 0.5, "tf32")
