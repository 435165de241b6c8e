"""Products on tensor cores: when they are used, and their index arithmetic (instructions are emulated)."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from emulation import EMULATED
from optdb.codegen.gemm import families, tensor_cores, tune, tuning_table, warpgroups
from optdb.codegen.gemm.families import Request
from optdb.codegen.gemm.launches import run, total_kernel
from optdb.codegen.gemm.problem import Problem, steps
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.gemm.tensor_cores import TensorBlock, kernel_name, plan, ptx, tensor_kernel
from optdb.codegen.kernels import compile_kernels
from optdb.codegen.kernels.bodies import bodies_of
from optdb.codegen.kernels.programs import TranslationUnit
from optdb.runtime import binaries, tuning
from optdb.runtime.arrays import from_host, to_host
from optdb.runtime.context import Context
from optdb.runtime.context_options import ContextOptions
from optdb.runtime.errors import DeviceError
from tests.codegen.test_matmul import context_of, put

#: Blocks that are small enough for the memory checker Oclgrind to run several of them.
SMALL = TensorBlock(32, 32, 16, 2, 16, 32)
OTHER = TensorBlock(32, 64, 32, 2, 16, 32)
HALVES = TensorBlock(64, 64, 16, 2, 32, 32)
#: Maps an arithmetic to the largest relative error of a product of two numbers.
EPS = {"tf32": 2 * 2 / 3 * 2.0**-10, "tf32x3": 2.0**-19, "float16": 0.0}
DTYPE = {"tf32": "float32", "tf32x3": "float32", "float16": "float16"}


@functools.cache
def checker():
    """Return a context of Oclgrind, because PoCL 3.1 miscomputes barriers in nested loops."""
    try:
        context = Context("oclgrind")
    except DeviceError as error:
        pytest.skip(str(error))
    # Tests of warpgroups give Oclgrind more local memory, which would change the tiles that other tests get.
    context.profile = replace(context.profile.as_kind("gpu", 1), local_memory_bytes=32 << 10)
    return context


@functools.cache
def compiled(block, arithmetic, along):
    kernels = [tensor_kernel(block, arithmetic, along, EMULATED), total_kernel(DTYPE[arithmetic])]
    return compile_kernels(kernels, checker())


def sample(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def multiply(block, arithmetic, a, b, y, alpha=1.0, beta=0.0, layouts=(((0, 1, 2), (1, 1, 1)),) * 3, units=1):
    """Multiply batches of matrices that have the given layouts; return the product and the launches."""
    context = checker()
    batch = y.shape[0]
    a, b, y = (value.astype(DTYPE[arithmetic]) for value in (a, b, y))
    x, v, z = (put(context, value, *layout) for value, layout in zip((a, b, y), layouts))
    added = steps(z, batch)
    problem = Problem(batch, *y.shape[1:], a.shape[2], steps(x, batch), steps(v, batch), added, added, beta != 0)
    launches = plan(problem, block, arithmetic, units)
    kernels = compiled(block, arithmetic, problem.along)
    run(launches, kernels, context, {"a": x, "b": v, "y": z, "z": z}, alpha, beta)
    return to_host(z), launches


def check(got, a, b, y, alpha, beta, arithmetic):
    a, b, y = (value.astype(DTYPE[arithmetic]).astype("float64") for value in (a, b, y))
    want, magnitude = alpha * (a @ b) + beta * y, abs(alpha) * (abs(a) @ abs(b)) + abs(beta * y)
    rounding = 2.0**-10 if arithmetic == "float16" else 2.0**-22
    assert (abs(got - want) <= (EPS[arithmetic] + rounding) * magnitude + 1e-30).all()


_SLOW = pytest.mark.slow
ARITHMETICS = ["tf32", pytest.param("tf32x3", marks=_SLOW), pytest.param("float16", marks=_SLOW)]
BLOCKS = [(SMALL, "tf32"), pytest.param(HALVES, "float16", marks=_SLOW)]
ORDERS = {"rows": ((0, 1, 2), (1, 1, 1)), "columns": ((0, 2, 1), (1, 1, 1))}


@pytest.mark.thorough_cases(
    "rows-rows-tf32x3",
    "columns-rows-tf32x3",
    "rows-columns-tf32x3",
    "columns-rows-float16",
    "rows-columns-float16",
)
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("left", ORDERS)
@pytest.mark.parametrize("right", ORDERS)
def test_each_order_of_the_matrices(left, right, arithmetic):
    block = HALVES if arithmetic == "float16" else SMALL if left == right else OTHER
    # Rows in memory have a multiple of 16 bytes, but the sizes are no multiples of the block's sizes.
    columns = block.cols + 8
    a, b, y = sample(1, 40, 24), sample(1, 24, columns), sample(1, 40, columns)
    got, _ = multiply(block, arithmetic, a, b, y, 1.5, 0.5, (ORDERS[left], ORDERS[right], ORDERS["rows"]))
    check(got, a, b, y, 1.5, 0.5, arithmetic)


@pytest.mark.thorough_cases("block1-float16-rows-rows", "block1-float16-columns-columns")
@pytest.mark.parametrize(
    ("left", "right"), [("rows", "rows"), ("columns", "columns"), ("rows", "columns"), ("columns", "rows")]
)
@pytest.mark.parametrize(("block", "arithmetic"), BLOCKS)
def test_whole_tiles(left, right, block, arithmetic):
    side = block.rows
    a, b, y = sample(1, side, 64), sample(1, 64, side), sample(1, side, side)
    got, _ = multiply(block, arithmetic, a, b, y, 1.0, 0.0, (ORDERS[left], ORDERS[right], ORDERS["rows"]))
    check(got, a, b, y, 1.0, 0.0, arithmetic)


@pytest.mark.thorough_cases("block1-float16-rows", "block0-tf32-columns")
@pytest.mark.parametrize("right", ["rows", "columns"])
@pytest.mark.parametrize(("block", "arithmetic"), BLOCKS)
def test_numbers_that_are_not_aligned(right, block, arithmetic):
    a, b, y = sample(2, 33, 19), sample(1, 19, 35), sample(2, 33, 35)
    layouts = ((0, 1, 2), (1, 2, 1)), ORDERS[right], ((1, 0, 2), (1, -1, 2))
    got, _ = multiply(block, arithmetic, a, b, y, -0.5, 2.0, layouts)
    check(got, a, b, y, -0.5, 2.0, arithmetic)


@pytest.mark.thorough_cases("2-16", "3-32")
@pytest.mark.parametrize("depth", [16, pytest.param(32, marks=_SLOW)])
@pytest.mark.parametrize("stages", [2, 3])
def test_any_number_of_stages(depth, stages):
    block = TensorBlock(32, 32, depth, stages, 16, 32)
    a, b, y = sample(1, 32, 100), sample(1, 100, 32), sample(1, 32, 32)
    got, _ = multiply(block, "tf32", a, b, y)
    check(got, a, b, y, 1.0, 0.0, "tf32")


@pytest.mark.thorough_cases(
    "38-TensorBlock(rows=64, cols=64, depth=16, stages=2, warp_rows=64, warp_cols=32)-orders1",
    "38-TensorBlock(rows=64, cols=64, depth=16, stages=3, warp_rows=32, warp_cols=64)-orders0",
    "38-TensorBlock(rows=64, cols=64, depth=16, stages=3, warp_rows=32, warp_cols=64)-orders2",
)
@_SLOW
@pytest.mark.parametrize("orders", [((0, 1, 2), (0, 1, 2)), ((0, 1, 2), (0, 2, 1)), ((0, 2, 1), (0, 1, 2))])
@pytest.mark.parametrize("block", [TensorBlock(64, 64, 16, 2, 64, 32), TensorBlock(64, 64, 16, 3, 32, 64)], ids=str)
@pytest.mark.parametrize("columns", [pytest.param(64, marks=pytest.mark.thorough), 38])
def test_rows_are_multiplied_in_halves(block, orders, columns):
    a, b, y = sample(1, 70, 40), sample(1, 40, columns), sample(1, 70, columns)
    layouts = [*((order, (1, 1, 1)) for order in orders), ((0, 1, 2), (1, 1, 1))]
    got, _ = multiply(block, "tf32", a, b, y, -0.5, 2.0, layouts)
    check(got, a, b, y, -0.5, 2.0, "tf32")


@_SLOW
def test_sums_are_cut_into_parts(monkeypatch):
    monkeypatch.setattr(tensor_cores, "PART", 16)
    a, b, y = sample(1, 33, 50), sample(1, 50, 33), sample(1, 33, 33)
    got, launches = multiply(SMALL, "tf32", a, b, y, 1.0, 1.0, units=16)
    assert launches.launches[-1].kernel == "matmul_total" and launches.memory == 2 * 33 * 33
    check(got, a, b, y, 1.0, 1.0, "tf32")


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_sums_of_no_terms(beta):
    a, b, y = sample(1, 33, 0), sample(1, 0, 34), sample(1, 33, 34)
    got, _ = multiply(SMALL, "tf32", a, b, y, 1.0, beta)
    np.testing.assert_array_equal(got, np.float32(beta) * y)


@pytest.mark.parametrize("arithmetic", ARITHMETICS[:2])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_infinities_and_nans_go_where_they_do_elsewhere(arithmetic):
    a, b, y = sample(1, 40, 20), sample(1, 20, 36), sample(1, 40, 36)
    a[0, 3, 5], a[0, 20, 0], a[0, 39, 19], b[0, 7, 11] = np.inf, -np.inf, np.nan, np.inf
    # The bits that distinguish a NaN with few bits from an infinity must not be lost.
    a[0, 8, 8] = np.uint32(0x7F800001).view(np.float32)
    # Rounding must not increment a NaN to a number.
    a[0, 9, 9] = np.uint32(0x7FFFFFFF).view(np.float32)
    b[0, 5, 2] = b[0, 0, 3] = 0
    got, _ = multiply(SMALL, arithmetic, a, b, y)
    want = a.astype("float64") @ b.astype("float64")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    assert np.isinf(want).sum() > 80 and np.isnan(want).sum() > 70


@_SLOW
def test_three_passes_keep_large_numbers_finite():
    a, b, y = sample(1, 32, 16), np.zeros((1, 16, 32), "float32"), sample(1, 32, 32)
    # TF32 rounds the largest float32 to infinity.
    a[0, 0, 0], b[0, 0] = np.finfo("float32").max, 0.5
    got, _ = multiply(SMALL, "tf32x3", a, b, y)
    want = a.astype("float64") @ b.astype("float64")
    np.testing.assert_allclose(got, want.astype("float32"), 1e-6)


# Choice of products


@pytest.fixture
def with_tensor_cores(monkeypatch):
    """Return a context of a device that claims to have tensor cores; its kernels emulate them."""
    context = checker()
    quirks = replace(context.profile.quirks, takes_ptx=True)
    driver = replace(context.profile.driver, version="580.95")
    h200 = replace(context.profile, quirks=quirks, driver=driver, compute_capability=(9, 0))
    monkeypatch.setattr(context, "profile", h200)
    monkeypatch.setattr(tensor_cores, "_BLOCKS", dict.fromkeys(tensor_cores._BLOCKS, SMALL))
    monkeypatch.setattr(warpgroups, "DEFAULTS", {})
    monkeypatch.setattr(context, "options", ContextOptions(instructions=EMULATED))
    monkeypatch.delitem(context.kept, families.__name__, raising=False)
    yield context
    context.kept.pop(families.__name__, None)


def product(context, a, b, precision, dtype="float32", order=(0, 1)):
    x, v = (from_host(context, value.astype(dtype)) for value in (a, b))
    z = put(context, np.full((a.shape[0], b.shape[1]), np.nan, dtype), order, (1, 1))
    matmul(compile_kernels(matmul_kernels(dtype, context), context), context, x, v, z, precision=precision)
    return to_host(z)


#: In TF32, this number is rounded to 1.
FINE = np.float32(1 + 2**-13)


@_SLOW
def test_precisions_of_one_process_share_nothing(with_tensor_cores):
    a, b = np.full((25, 16), FINE), np.ones((16, 26), "float32")
    for precision, want in [("default", 16), ("highest", 16 * FINE), ("high", 16 * FINE), ("default", 16)]:
        assert (product(with_tensor_cores, a, b, precision) == want).all(), precision


def test_columns_of_a_result_are_taken_for_rows(with_tensor_cores):
    a, b = sample(25, 20), sample(20, 33)
    got = product(with_tensor_cores, a, b, "default", order=(1, 0))
    check(got, a, b, np.zeros(1), 1.0, 0.0, "tf32")
    assert not np.array_equal(got, product(with_tensor_cores, a, b, "highest"))


@pytest.mark.parametrize(("m", "n", "k"), [(24, 40, 16), (40, 24, 16), (25, 25, 15)])
def test_small_products_are_of_the_highest_precision(with_tensor_cores, m, n, k):
    got = product(with_tensor_cores, np.full((m, k), FINE), np.ones((k, n), "float32"), "default")
    np.testing.assert_array_equal(got, k * FINE)


def test_other_dtypes_are_of_the_highest_precision(with_tensor_cores):
    a = np.full((25, 16), 1 + 2.0**-40)
    assert (product(with_tensor_cores, a, np.ones((16, 26)), "default", "float64") == 16 * a[0, 0]).all()


@pytest.mark.parametrize("device_kind", ["cpu", "gpu"])
@pytest.mark.parametrize("precision", ["high", "default"])
def test_devices_without_tensor_cores_change_nothing(device_kind, precision):
    context = context_of(device_kind)
    if context.profile.has_tensor_cores:
        pytest.skip("the device has them")
    a, b = sample(40, 33), sample(33, 50)
    np.testing.assert_array_equal(product(context, a, b, precision), product(context, a, b, "highest"))


def test_kernels_that_do_not_build_are_not_taken(with_tensor_cores, monkeypatch, caplog):
    monkeypatch.setattr(with_tensor_cores, "options", ContextOptions())  # Oclgrind takes no PTX
    a, b = np.full((25, 16), FINE), np.ones((16, 26), "float32")
    assert (product(with_tensor_cores, a, b, "default") == 16 * FINE).all()
    assert "Other kernels are used for a product by tf32" in caplog.text


def test_blocks_fit_a_gpu():
    for block in {*tensor_cores._BLOCKS.values(), *tensor_cores.DEFAULTS}:
        assert block.local_bytes <= 96 << 10 and block.items <= 1024


def test_other_kernels_do_not_run_them_as_a_part():
    kernel = tensor_kernel(SMALL, "tf32", (True, False), ptx())
    assert kernel.name == kernel_name(SMALL.name, "tf32", (True, False)) == "tensor_32x32x16_2_16x32_tf32_tn"
    assert not bodies_of(TranslationUnit(checker(), (kernel.code,), "a product")).kernels


def test_files_take_no_ptx(with_tensor_cores):
    assert with_tensor_cores.profile.has_tensor_cores
    assert not with_tensor_cores.profile.for_any_driver("gpu", 8).has_tensor_cores


# On a GPU


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "precision"), tensor_cores.ARITHMETIC)
def test_all_lengths_up_to_twice_a_tile_on_a_gpu(dtype, precision):
    context = Context("opencl")
    if not context.profile.has_tensor_cores:
        pytest.skip("the device has no tensor cores")
    rng = np.random.default_rng(1)
    kernels = compile_kernels(matmul_kernels(dtype, context), context)
    for _ in range(300):
        m, n, k = rng.integers(25, 2 * 128 + 2, 3)
        a, b, y = (value.astype(dtype) for value in (sample(1, m, k), sample(1, k, n), sample(1, m, n)))
        orders = [list(ORDERS.values())[number] for number in rng.integers(0, 2, 3)]
        x, v, z = (put(context, value, *order) for value, order in zip((a, b, y), orders))
        matmul(kernels, context, x, v, z, 1.5, z, 0.5, precision)
        check(to_host(z), a, b, y, 1.5, 0.5, tensor_cores.ARITHMETIC[dtype, precision])


# Rates of tile shapes


@pytest.fixture
def measuring(with_tensor_cores, tmp_path, monkeypatch):
    """Yield a context of an unmeasured device; measurements are quick, with at most two groups per compute unit."""
    monkeypatch.setattr(binaries, "_current", binaries.Binaries(tmp_path))
    monkeypatch.setattr(tensor_cores, "CANDIDATES", (SMALL, OTHER))
    monkeypatch.setattr(tune, "_MOST_GROUPS", 2)
    monkeypatch.setattr(tune, "SECONDS", 0.0)
    with_tensor_cores.kept.pop(tuning_table.__name__, None)
    yield with_tensor_cores
    with_tensor_cores.kept.pop(tuning_table.__name__, None)


#: The rates of a device that resembles an H200, but has only 32 KiB of local memory.
BY_DEFAULT = tensor_cores.DEFAULTS


def seconds_of_groups(monkeypatch, *seconds):
    """Make successive measurements of products return the given seconds."""
    left = list(seconds)
    monkeypatch.setattr(tune, "best_seconds", lambda context, compute: compute() or left.pop(0))


def test_rates_are_measured_kept_and_used(measuring, monkeypatch):
    assert tensor_cores.rates_of(measuring) == BY_DEFAULT
    # With the block `SMALL`, a second group per unit makes products faster; with `OTHER`, it does not.
    seconds_of_groups(monkeypatch, 1e-3, 1.25e-3, 1e-3, 2e-3)
    rates = tune.tune_tensor_cores(measuring, terms=16)
    assert {block: len(of_groups) for block, of_groups in rates.items()} == {SMALL: 2, OTHER: 1}
    assert rates[SMALL][0] == pytest.approx(2e-9 * 32 * 32 * 16)
    assert rates[SMALL][1] == pytest.approx(2 / 1.25 * rates[SMALL][0])
    assert tensor_cores.rates_of(measuring) == rates
    measuring.kept.pop(tuning_table.__name__)
    assert {block: tuple(of) for block, of in tensor_cores.rates_of(measuring).items()} == rates
    quick = Problem(1, 200, 300, 64, (0, 64, 1), (0, 300, 1), (0, 300, 1), (0, 300, 1), False)
    names = {choice.name for choice in tensor_cores.choices(measuring, Request(quick, "float32", "default"))}
    assert names >= {f"a product by tf32, {block.name}" for block in rates}
    tuning_table.record(measuring, {tensor_cores.TILES: {}})
    assert tensor_cores.rates_of(measuring) == BY_DEFAULT


def test_a_shape_that_computes_something_else_has_no_rates(measuring, monkeypatch):
    monkeypatch.setattr(tune.TrialProduct, "is_correct", lambda *_: False)
    assert tune.tune_tensor_cores(measuring, terms=16) == {}
    assert tensor_cores.rates_of(measuring) == BY_DEFAULT


@pytest.mark.parametrize(
    "damaged",
    [[], {}, {"tensor_9x9": [1.0]}, {SMALL.name: []}, {SMALL.name: [0.0]}, {SMALL.name: ["1"]}, {SMALL.name: 1.0}],
)
def test_damaged_rates_are_those_of_no_tuning(measuring, damaged):
    tuning.save(tuning_table.key_of(measuring), {tensor_cores.TILES: damaged})
    assert tensor_cores.rates_of(measuring) == BY_DEFAULT


def test_a_shape_that_does_not_build_is_left_for_the_next(measuring, monkeypatch, caplog):
    monkeypatch.setattr(tensor_cores, "rates_of", lambda context: {SMALL: (1.0,), OTHER: (3.0,)})
    instructions = {OTHER: ptx(), SMALL: EMULATED}  # Oclgrind takes no PTX
    monkeypatch.setattr(
        tensor_cores, "tensor_kernel", lambda block, *args: tensor_kernel(block, *args[:2], instructions[block])
    )
    a, b = sample(64, 40), sample(40, 64)
    check(product(measuring, a, b, "default"), a, b, np.zeros(1), 1.0, 0.0, "tf32")
    assert f"Other kernels are used for a product by tf32, {OTHER.name}" in caplog.text


def test_only_devices_that_have_it_take_more_local_memory_than_they_tell(with_tensor_cores):
    profile = with_tensor_cores.profile
    large = next(block for block in tensor_cores.DEFAULTS if block.local_bytes > 48 << 10)
    assert large in tensor_cores.fitting(with_tensor_cores, tensor_cores.DEFAULTS)
    ampere = replace(profile, compute_capability=(8, 0), local_memory_bytes=48 << 10)
    assert ampere.most_local_bytes == 48 << 10 and ampere.has_tensor_cores
    older = replace(profile, driver=replace(profile.driver, version="570.1"))
    assert older.most_local_bytes == profile.local_memory_bytes
    without_ptx = replace(profile, quirks=replace(profile.quirks, takes_ptx=False))
    assert without_ptx.most_local_bytes == profile.local_memory_bytes
