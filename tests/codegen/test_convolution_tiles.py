"""For each tile, the convolution kernels for GPUs give NumPy's results."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulation import EMULATED
from optdb.codegen.convolve import packing, plan, tile_kernels, tiles
from optdb.codegen.convolve.geometry import axes_of
from optdb.codegen.convolve.packing import ConvolutionCall, FilterGroups
from optdb.codegen.convolve.tile_kernels import Tile
from optdb.codegen.gemm import families
from optdb.codegen.kernels import Kernel, compile_kernels
from optdb.runtime.arrays import empty, to_host
from optdb.runtime.device_profiles import DeviceProfile
from tests.codegen.convolved import Reference, case, close, convolutions, lengths_of
from tests.codegen.layouts import context, device_array
from tests.codegen.test_convolutions import OPERATIONS, convolved
from tests.codegen.test_tensor_cores import checker
from tests.effort import examples

#: Tiles that are so small that small images fill them. Only in the first tile, the 32 items of a warp form a rectangle.
#: Each item of the last tile loads two columns.
SMALL = [Tile(16, 64, 8, 4, 4), Tile(32, 32, 16, 4, 8), Tile(16, 16, 8, 4, 4), Tile(32, 32, 8, 8, 8)]
#: Three tiles of `SMALL`, and a larger tile, with asynchronous copies.
COPIED = [
    replace(SMALL[0], stages=3),
    replace(SMALL[3], stages=3),
    replace(SMALL[1], stages=2),
    Tile(64, 64, 8, 8, 8, stages=4),
]
KINDS = ("CORRELATE", "WEIGHTS")
DTYPES = ["float16", "float32", "float64"]
_compiled = {}


@pytest.fixture(autouse=True)
def as_a_graphics_card(monkeypatch):
    monkeypatch.setattr(context(), "profile", context().profile.as_kind("gpu"))


def all_kernels(dtype, tile):
    """Return the kernels for results and both gradients; those for filter gradients use no asynchronous copies."""
    of_kinds = zip(KINDS, (tile, replace(tile, stages=0)))
    return [k for kind, each in of_kinds for k in tile_kernels.kernels_by_tiles(kind, dtype, [each], EMULATED)]


def kernels_of(dtype, tile):
    """Return a tile's compiled kernels, which are the same whatever device profile a test sets."""
    if (dtype, tile) not in _compiled:
        kernels = all_kernels(dtype, tile)
        kernels += packing.convolution_kernels(dtype, context(), "", ["pack_images"])
        unique = {kernel.name: kernel for kernel in kernels}
        _compiled[dtype, tile] = compile_kernels(unique.values(), context(), "a test")
    return _compiled[dtype, tile]


def compute(arrays, parameters, dtype, tile, parts=1, steps=1, context=context, kernels_of=kernels_of):
    """Return the result and both gradients of a convolution, computed by the kernels of a tile."""
    x, w, t = (array.astype(dtype) for array in arrays)
    kernels, groups, flip = kernels_of(dtype, tile), parameters.get("num_groups", 1), parameters["filter_flip"]
    axes = axes_of(
        x.shape[2:], w.shape[2:], *(parameters[name] for name in ("border_mode", "subsample", "filter_dilation"))
    )
    forward, backward = plan.forward(axes, flip, 1), plan.backward(axes, flip, 1)
    rows, channels, taps = w.shape[0] // groups, w.shape[1], int(np.prod(w.shape[2:]))
    strided = [steps] + [1] * (x.ndim - 1)
    loaded = replace(tile, stages=0)
    on_device = (device_array(value, how, context) for value, how in ((x, strided), (w, None), (t, None)))
    results = [empty(context(), value.shape, dtype) for value in (t, w, x)]
    image, filters, top = on_device
    of_rows, of_channels = (
        (rows * channels * taps, channels * taps, taps),
        (rows * channels * taps, taps, channels * taps),
    )
    call, shape = ConvolutionCall(kernels, context()), FilterGroups(filters, groups, rows, channels, of_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "chosen", lambda call, *_: (call.kernels, tile))
        patch.setattr(tiles, "own_tiles", lambda *_: [loaded])
        for name in ("parts_of_terms", "parts_of_pixels"):
            patch.setattr(tiles, name, lambda *_: parts)
        tiles.correlate_by_tiles(call, forward, image, shape, results[0])
        tiles.weights_by_tiles(call, forward, groups, image, top, results[1])
        if backward.complete:
            shape = FilterGroups(filters, groups, channels, rows, of_channels)
            tiles.correlate_by_tiles(call, backward, top, shape, results[2])
    reference = Reference(x, w, t, parameters)
    pairs = [(results[0], reference.forward()), (results[1], reference.weights()), (results[2], reference.inputs())]
    return [(to_host(got), want) for got, want in (pairs if backward.complete else pairs[:2])]


def check(arrays, parameters, dtype, *others):
    for got, want in compute(arrays, parameters, dtype, *others):
        close(got, want, dtype)


@st.composite
def cases(draw):
    """Draw images, filters, a gradient of the result, and parameters, with any channels and groups."""
    image, taps, parameters = draw(convolutions())
    if draw(st.booleans()):  # with rows that consist of whole vectors
        image = tuple(4 * -(-length // 4) for length in image)
    numbers = [parameters[name] for name in ("border_mode", "subsample", "filter_dilation")]
    groups, images = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 4))
    channels, features = draw(st.integers(1, 9)), draw(st.sampled_from([1, 3, 8, 17, 33]))
    if min(lengths_of(image, taps, *numbers)) <= 0:
        image = tuple(length + 12 for length in image)
    others = {"num_groups": groups, "filter_flip": parameters["filter_flip"]}
    return case(images, channels * groups, features * groups, image, taps, *numbers, **others)


@given(
    cases(),
    st.sampled_from(SMALL),
    st.sampled_from(DTYPES),
    st.sampled_from([1, 1, 2, 5, 19]),
    st.sampled_from([1, -2]),
)
@settings(max_examples=examples(120, share=8), deadline=None)
def test_any_convolution(case, tile, dtype, parts, steps):
    check(*case, dtype, tile, parts, steps)


@given(cases(), st.sampled_from(COPIED), st.sampled_from([1, 1, 2, 5, 19]), st.sampled_from([1, -2]))
@settings(max_examples=examples(60), deadline=None)
def test_tiles_copied_in_the_background(case, tile, parts, steps):
    check(*case, "float32", tile, parts, steps)


@pytest.mark.thorough_cases("float16")
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_tiles(dtype):
    for tile in {tile for kind in KINDS for tile in tile_kernels.own_tiles(kind, context(), dtype)}:
        check(*case(3, 5, 37, (9, 8), (3, 3), "half", filter_flip=False), dtype, tile)
        check(*case(2, 34, 131, (4, 6), (2, 3), (1, 0), step=(1, 2), filter_flip=True), dtype, tile, 2)


def test_three_axes():
    arrays, parameters = case(2, 3, 4, (4, 5, 6), (2, 3, 2), (1, 0, 1), step=(1, 2, 1), filter_flip=True)
    check(arrays, parameters, "float32", SMALL[0])


@pytest.mark.parametrize("taps", [(5, 7), (6, 6)])
def test_more_taps_than_bits(taps):
    check(*case(2, 3, 5, (9, 8), taps, "half", filter_flip=True), "float32", SMALL[0])


def test_what_is_not_finite_stays_where_it_is():
    arrays, parameters = case(2, 3, 5, (9, 8), (3, 3), "half", filter_flip=True)
    x, _, t = arrays
    x[1, 2, 8, 7], t[0, 4, 0, 0] = np.inf, np.nan
    for got, want in compute(arrays, parameters, "float32", SMALL[0]):
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))


def test_parts_are_added_up_in_their_order():
    arrays, parameters = case(5, 9, 17, (12, 12), (3, 3), "half", filter_flip=True)
    once, again = (compute(arrays, parameters, "float32", SMALL[0], 4) for _ in range(2))
    for (one, _), (other, _) in zip(once, again):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("images", [1, 2, 3])
def test_images_that_are_laid_out_a_few_at_a_time(monkeypatch, images):
    arrays, parameters = case(5, 4, 9, (9, 8), (3, 3), "half", filter_flip=True)
    monkeypatch.setattr(packing, "LARGEST", images * 4 * 11 * 10 * 4)
    check(arrays, parameters, "float32", SMALL[0], 2, -2)


def test_indexes_of_32_bits():
    axes = axes_of((30000, 30000), (3, 3), "half", (1, 1), (1, 1))
    layout = plan.ChannelLayout((1, 30000, 30000), (1, 1, 1), ((0,), (-1,), (-1,)), (1, 30002, 30002))
    product = plan.TapProduct(np.arange(9), np.arange(9), np.arange(1), np.zeros((1, 1), int))
    large = plan.ConvolutionPlan(layout, (product,))
    assert axes[1].out == 30000 and tiles.suits(large, 2, 4, 100)
    assert not tiles.suits(large, 3, 4, 100) and not tiles.suits(large, 1, 4, 30000**2)


def test_few_features_of_few_channels_are_no_work_for_tiles():
    plans = plan.forward(axes_of((9, 9), (3, 3), "half", (1, 1), (1, 1)), True, 1)
    assert tiles.suits(plans, 3, 4, 81) and tiles.suits(plans, 64, 1, 81) and not tiles.suits(plans, 3, 3, 81)


def cheapest(tiles, *lengths):
    return min(tiles, key=lambda tile: tile_kernels.cost(tile, *lengths))


@pytest.fixture
def without_tensor_cores(monkeypatch, as_a_graphics_card):
    """Make the device a GPU with four compute units, without tensor cores, and without asynchronous copies."""
    profile = context().profile
    quirks = replace(profile.quirks, takes_ptx=False)
    monkeypatch.setattr(context(), "profile", replace(profile, compute_units=4, quirks=quirks))


def test_tiles_have_room_for_rows_and_parts_for_all_units(without_tensor_cores):
    float32, rows = tile_kernels.own_tiles("CORRELATE", context(), "float32"), (1, 16, 17, 40, 64, 65, 128, 200)
    assert [cheapest(float32, count).rows for count in rows] == [16, 16, 32, 64, 64, 32, 128, 128]
    both = [Tile(128, 128, 16, 8, 8), Tile(64, 64, 16, 8, 8), Tile(32, 128, 16, 4, 8)]
    assert [cheapest(both, 256, cols).rows for cols in (9, 64, 128, 600)] == [64, 64, 128, 128]
    units = context().profile.compute_units
    tile = float32[1]
    assert tile_kernels.parts_of_terms(context(), tile, 1, tile.cols * units * 8, 10000) == 1
    assert tile_kernels.parts_of_terms(context(), tile, units, tile.cols, 10000) == 3
    assert tile_kernels.parts_of_terms(context(), tile, units, tile.cols, 1024) == 2
    assert tile_kernels.parts_of_terms(context(), tile, units, tile.cols, 1000) == 1
    assert tile_kernels.parts_of_terms(context(), tile, 1, 1, 100) == 1
    assert tile_kernels.parts_of_pixels(context(), tile, 1, 2**25) == 1
    assert tile_kernels.parts_of_pixels(context(), tile, 1, 100) == 4 * units


@pytest.fixture
def copying(monkeypatch):
    """Make the device claim asynchronous copies, which are emulated."""
    monkeypatch.setattr(DeviceProfile, "has_tensor_cores", property(lambda self: True))
    monkeypatch.setattr(context(), "options", replace(context().options, instructions=EMULATED))
    kept = context().kept.pop(families.__name__, None)
    yield
    context().kept.pop(families.__name__, None)
    if kept is not None:
        context().kept[families.__name__] = kept


@pytest.mark.parametrize("features", [7, 20, 64, 130])
def test_devices_with_copies_take_tiles_for_them(features, copying):
    arrays, parameters = case(2, 15, features, (9, 8), (3, 3), "half", filter_flip=True)
    x, w, t = (array.astype("float32") for array in arrays)
    reference = Reference(x, w, t, parameters)
    for kind, want in zip(OPERATIONS, (reference.forward(), reference.weights(), reference.inputs())):
        close(convolved(kind, x, w, t, parameters), want, "float32")
    cache = context().kept[families.__name__]._entries
    taken = [choice.plan for _, choice in cache.values()]
    assert taken and all(tile in tile_kernels.COPIED_TILES for tile in taken)


@pytest.mark.parametrize("features", [7, 20, 64, 130])
def test_devices_with_copies_have_one_tile_without(features, copying, monkeypatch):
    monkeypatch.setattr(families, "try_compile", lambda *_: None)
    arrays, parameters = case(2, 15, features, (9, 8), (3, 3), "half", filter_flip=True)
    x, w, t = (array.astype("float32") for array in arrays)
    reference = Reference(x, w, t, parameters)
    for kind, want in zip(OPERATIONS, (reference.forward(), reference.weights(), reference.inputs())):
        close(convolved(kind, x, w, t, parameters), want, "float32")
    assert len(tile_kernels.own_tiles("CORRELATE", context(), "float32")) == 1


def test_all_tiles_of_devices_with_copies(copying):
    for tile in tile_kernels.COPIED_TILES:
        assert tile.local_bytes("float32") <= 48000
        check(*case(2, 34, 131, (4, 6), (2, 3), (1, 0), step=(1, 2), filter_flip=True), "float32", tile)


def test_kernels_that_do_not_build_are_not_needed(copying, monkeypatch, caplog):
    wrong = Kernel("KERNEL void wrong(ga_size n) { nothing; }")
    monkeypatch.setattr(tile_kernels, "tile_kernel", lambda *_: wrong)
    request = tile_kernels.TileRequest("float32", "highest", 64)
    choice = families.prepared((tile_kernels.copied_choices, tile_kernels.own_choices), context(), request)
    assert choice.plan in tile_kernels.own_tiles("CORRELATE", context(), "float32") and choice.kernels is None
    assert "a kernel does not build" in caplog.text


def test_large_tiles_are_not_compiled_for_small_devices(copying, monkeypatch):
    monkeypatch.setattr(context(), "profile", replace(context().profile, local_memory_bytes=8192))
    assert not tile_kernels.copied_choices(context(), tile_kernels.TileRequest("float32", "highest", 64))


def test_files_have_the_kernels_of_their_functions(copying, monkeypatch):
    monkeypatch.setattr(tile_kernels, "tracing", lambda: "a trace")
    kernels, tile = tile_kernels.chosen(ConvolutionCall({}, context()), "float32", 64)
    assert tile in tile_kernels.own_tiles("CORRELATE", context(), "float32") and not kernels


def test_tiles_fit_local_memory(monkeypatch, without_tensor_cores):
    monkeypatch.setattr(context(), "profile", replace(context().profile, local_memory_bytes=32768))
    for dtype in DTYPES:
        for tile in [tile for kind in KINDS for tile in tile_kernels.own_tiles(kind, context(), dtype)]:
            assert tile.local_bytes(dtype) <= 32768
    assert tile_kernels.own_tiles("WEIGHTS", context(), "float32")[0].depth == 8


# With tensor cores, whose instructions Oclgrind emulates

#: Tiles of one warp, and of two adjacent warps.
TENSOR = [
    *(Tile(16, 16, 8, 2, 4, True), Tile(32, 32, 16, 2, 8, True), Tile(16, 64, 8, 2, 8, True)),
    *(Tile(32, 32, 16, 2, 8, True, 2), Tile(32, 64, 8, 4, 16, True, 3)),
]


@functools.cache
def tensor_kernels_of(dtype, tile):
    kernels = all_kernels(dtype, tile)
    kernels += packing.convolution_kernels(dtype, checker(), "", ["pack_images"])
    unique = {kernel.name: kernel for kernel in kernels}
    return compile_kernels(unique.values(), checker(), "a test")


@pytest.mark.thorough_cases(
    "1-Tile(rows=32, cols=32, depth=16, item_rows=2, item_cols=8, tensor=True, stages=0)",
    "1-Tile(rows=16, cols=64, depth=8, item_rows=2, item_cols=8, tensor=True, stages=0)",
    "1-Tile(rows=32, cols=64, depth=8, item_rows=4, item_cols=16, tensor=True, stages=3)",
    "2-Tile(rows=32, cols=32, depth=16, item_rows=2, item_cols=8, tensor=True, stages=0)",
    "2-Tile(rows=16, cols=64, depth=8, item_rows=2, item_cols=8, tensor=True, stages=0)",
    "2-Tile(rows=32, cols=32, depth=16, item_rows=2, item_cols=8, tensor=True, stages=2)",
    "1-Tile(rows=16, cols=16, depth=8, item_rows=2, item_cols=4, tensor=True, stages=0)",
)
@pytest.mark.slow
@pytest.mark.parametrize("tile", TENSOR, ids=str)
@pytest.mark.parametrize("parts", [1, 2])
def test_tensor_cores(tile, parts):
    for number in range(2):
        lengths, taps, step = [((6, 8), (3, 3), (1, 1)), ((5, 7), (2, 3), (2, 1))][number]
        # Integers that TF32 represents, so that all sums are exact.
        arrays, parameters = case(2, 3, 18, lengths, taps, "half", step=step, filter_flip=True)
        arrays = [np.round(3 * array) for array in arrays]
        for got, want in compute(arrays, parameters, "float32", tile, parts, 1, checker, tensor_kernels_of):
            np.testing.assert_array_equal(got, want)


def test_numbers_are_rounded_for_tensor_cores():
    arrays, parameters = case(1, 2, 16, (4, 4), (1, 1), "valid", filter_flip=True)
    arrays = [np.full(array.shape, 1 + 2.0**-13) for array in arrays]
    (got, _), *_ = compute(arrays, parameters, "float32", TENSOR[0], 1, 1, checker, tensor_kernels_of)
    assert (got == 2).all()


def test_the_precision_chooses_tiles(monkeypatch, without_tensor_cores):
    quirks = replace(context().profile.quirks, takes_ptx=True)
    profile = replace(context().profile, quirks=quirks, compute_capability=(9, 0))
    for precision, dtype, has in [
        ("default", "float32", True),
        ("high", "float32", False),
        ("default", "float64", False),
    ]:
        for kind in KINDS:
            assert not any(tile.tensor for tile in tile_kernels.own_tiles(kind, context(), dtype, precision))
            with monkeypatch.context() as patch:
                patch.setattr(context(), "profile", profile)
                chosen = tile_kernels.own_tiles(kind, context(), dtype, precision)
            assert {tile.tensor for tile in chosen} == {has}
    for tile in [tile for kind in KINDS for tile in tile_kernels.TENSOR_TILES[kind]]:
        warps = tile.rows // (8 * tile.item_rows) * (tile.cols // (4 * tile.item_cols))
        assert tile.items == 32 * warps and tile.local_bytes("float32") <= 48 << 10
