"""One kernel that executes a list of launches has the same effect as separate launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optdb.codegen.kernels import ARRAY, BUFFER, SIZE, SSIZES, Kernel, compile_kernels, ctype
from optdb.codegen.kernels.programs import origin
from optdb.device.launches import sequential
from optdb.device.launches.merging import LaunchMerging
from optdb.device.launches.programs import SEQUENCE, merged_program
from optdb.device.launches.sequential import SequenceProgram, may_be_merged, sequential_course
from optdb.runtime.arrays import from_host
from optdb.runtime.commands import EnqueueCopy, EnqueueFill, EnqueueKernel
from tests.opencl_device import runtime_context

DTYPES = ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64", "complex128")

PLACES = """
OUTLINED_KERNEL void places(ga_size n, GLOBAL_MEM long *o, ga_size o_off)
{
    o = (GLOBAL_MEM long *)((GLOBAL_MEM char *)o + o_off);
    const ga_size x = get_global_id(0), y = GID_1, z = get_group_id(2);
    o[(z * get_global_size(1) + y) * GDIM_0 + x] = x + 10 * y + 100 * z + 1000 * get_num_groups(2) + n * LDIM_1 + LID_0;
}
"""

# A kernel with types that its own code defines, and with names that the function of a list also uses.
NAMES = """
#define T int
typedef struct { float a, b; } pair;
OUTLINED_KERNEL void k(long16 s, T t, const ga_float its, GLOBAL_MEM const T *restrict x, GLOBAL_MEM pair *o)
{
    for (int i = 0; i < s.s1; ++i) {
        o[i].a = t * its + x[i];
        o[i].b = (int)s.sF;
    }
}
#undef T
"""


@pytest.fixture
def context():
    found = runtime_context()
    if not found.profile.quirks.compiles_body_repeatedly:
        pytest.skip("the bodies of kernels are functions of their own on PoCL alone")
    return found


def kernel_of(context, code, name, params):
    launcher = compile_kernels([Kernel(code, name, params)], context)[name]
    launcher.automatic_grid(1)
    return launcher


def in_one_launch(context, launches, commands=()):
    """Run launches and other commands with one kernel; a launch is (launcher, number of items, arguments)."""
    made = [
        EnqueueKernel(context.queue, launcher._kernel, items, None, tuple(launcher.bind(args)))
        for launcher, items, args in launches
    ]
    program = SequenceProgram([origin(launch.kernel) for launch in made])
    assert all(map(program.supports, made))
    program.launch([*made, *commands]).enqueue()
    context.queue.finish()


@pytest.mark.parametrize("items", [(1,), (5,), (3, 2), (2, 3, 4), (1, 1, 2)])
def test_work_items_know_their_places(context, items):
    places = kernel_of(context, PLACES, "places", [SIZE, ARRAY])
    got = []
    for way in ("launched", "listed"):
        array = from_host(context, np.full(60, -1))
        part = array[6:]
        if way == "launched":
            places.call(items, (1,) * len(items), 7, part)
        else:
            in_one_launch(context, [(places, items, (7, part))])
        got.append(array.get())
    np.testing.assert_array_equal(got[1], got[0])
    assert (got[0] != -1).sum() == np.prod(items)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_all_dtypes_arrive(context, dtype):
    if context.unsupported_reason(dtype) is not None:
        pytest.skip(context.unsupported_reason(dtype))
    kind = ctype(dtype)
    code = f"OUTLINED_KERNEL void k(ga_ubyte a, {kind} x, ga_size i, GLOBAL_MEM {kind} *o) {{ if (a == 3) o[i] = x; }}"
    k = kernel_of(context, code, "k", ["uint8", dtype, SIZE, BUFFER])
    values = np.array([0, 1, 2.75, 3 - 2j] if np.dtype(dtype).kind == "c" else [0, 1, 2.75], dtype)
    array = from_host(context, np.zeros(len(values), dtype))
    in_one_launch(context, [(k, (1,), (np.uint8(3), value, i, array)) for i, value in enumerate(values)])
    np.testing.assert_array_equal(array.get(), values)


def test_types_and_names_of_the_codes_own(context):
    k = kernel_of(context, NAMES, "k", [SSIZES, "int32", "float32", BUFFER, BUFFER])
    x, o = from_host(context, np.arange(3, dtype="int32")), from_host(context, np.zeros((3, 2), "float32"))
    sizes = [0, 3, *[0] * 13, 1 << 20]
    in_one_launch(context, [(k, (1,), (sizes, np.int32(-2), np.float32(0.5), x, o))])
    np.testing.assert_array_equal(o.get(), [[-1, 1 << 20], [0, 1 << 20], [1, 1 << 20]])


@pytest.mark.slow
def test_what_stands_later_in_a_list_sees_what_stands_before(context):
    double = kernel_of(
        context,
        "OUTLINED_KERNEL void d(ga_size n, GLOBAL_MEM int *a) { a[get_global_id(0)] *= n; }",
        "d",
        [SIZE, BUFFER],
    )
    add = kernel_of(
        context,
        "OUTLINED_KERNEL void d(GLOBAL_MEM int *a, int n) { a[get_global_id(0)] += n; }",
        "d",
        [BUFFER, "int32"],
    )
    array = from_host(context, np.arange(4, dtype="int32"))
    launches = [(add, (4,), (array, np.int32(1))), (double, (4,), (3, array)), (add, (2,), (array, np.int32(5)))]
    in_one_launch(context, launches)
    np.testing.assert_array_equal(array.get(), [8, 11, 9, 12])


@pytest.mark.parametrize(
    "pattern", [np.uint8(200), np.int16(-2), np.float32(0.1), np.float64(0.1), np.complex64(1 + 2j)]
)
def test_copies_and_fills(context, pattern):
    k = kernel_of(context, "OUTLINED_KERNEL void k(GLOBAL_MEM char *a) { }", "k", [BUFFER])
    array, size = from_host(context, np.zeros(9, pattern.dtype)), pattern.nbytes
    queue, buffer = context.queue, array.base_data
    commands = [
        EnqueueFill(queue, buffer, size, 5 * size, pattern),
        EnqueueCopy(queue, buffer, 7 * size, buffer, 4 * size, 2 * size),
        EnqueueCopy(queue, buffer, 0, buffer, 0, 0),
    ]
    in_one_launch(context, [(k, (1,), (array,))], commands)
    np.testing.assert_array_equal(array.get(), np.array([0, 1, 1, 1, 1, 1, 0, 1, 1]) * pattern)


@pytest.mark.parametrize(
    "code",
    [
        "OUTLINED_KERNEL void k(GLOBAL_MEM int *a) { LOCAL_MEM int b; b = 1; local_barrier(); a[0] = b; }",
        "OUTLINED_KERNEL void k(GLOBAL_MEM int *a) { a[get_global_id(0)] = get_work_dim(); }",
    ],
)
def test_kernels_of_other_kinds_are_left_out(context, code):
    k = kernel_of(context, code, "k", [BUFFER])
    _, cases = merged_program(SEQUENCE, {origin(k._kernel): 1}, items=1)
    assert not cases
    launch = EnqueueKernel(context.queue, k._kernel, (1,), None, ())
    assert not SequenceProgram([origin(k._kernel)]).supports(launch)


def test_commands_are_merged_where_a_launch_costs(context, monkeypatch):
    def launches_take(launch_s):
        profile = replace(context.profile, quirks=replace(context.profile.quirks, launch_s=launch_s))
        monkeypatch.setattr(sequential, "profile_of", lambda device: profile)

    buffer = from_host(context, np.zeros(16)).base_data
    commands = [EnqueueCopy(context.queue, buffer, 0, buffer, 64, 64) for _ in range(5)]
    launches_take(0.0)
    assert not any(map(may_be_merged, commands))
    launches_take(1e-5)
    assert all(map(may_be_merged, commands))
    commands[0].is_rebindable = True
    assert not may_be_merged(commands[0])
    assert LaunchMerging(sequential_course([commands], "never")).done
