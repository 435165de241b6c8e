"""Some kernel bodies are moved to separate functions, and results stay the same."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from optdb.codegen.kernels import BUFFER, PRELUDE, SIZE, BuildError, Kernel, compile_kernels, programs
from optdb.codegen.kernels.isolation import outlined
from optdb.runtime.arrays import from_host
from optdb.runtime.build import make
from optdb.runtime.context import Context
from tests.opencl_device import runtime_context

PLACES = """
#define TAKE(x) ((x) + 1)
static int helper(int x) { return TAKE(x); }
/* A comment with a bracket } in it. */
OUTLINED_KERNEL void places(const ga_size n, GLOBAL_MEM int * a, ga_size a_off)
{
    /* And } another one. */
    for (ga_size i = get_global_id(0); i < n; i += get_global_size( 0 ))
        a[i] = helper((int)(i * 100 + GID_0 * 10 + LID_0));
}
OUTLINED_KERNEL void places_too(ga_size n, GLOBAL_MEM int *a, ga_size a_off) {
    if (GDIM_1 * LDIM_1 + get_global_id(0) <= n) { a[get_global_id(0)] += get_num_groups(0) + get_work_dim(); }
}
"""

UNTOUCHED = [
    "KERNEL void k(GLOBAL_MEM int *a) { a[get_global_id(0)] = 1; }",
    "OUTLINED_KERNEL void k(GLOBAL_MEM int *a) { local_barrier(); a[get_global_id(0)] = 1; }",
    "OUTLINED_KERNEL void k(GLOBAL_MEM int *a) { LOCAL_MEM int b[4]; a[0] = 1; }",
    "OUTLINED_KERNEL void k(GLOBAL_MEM int *a) { for (int d = 0; d < 3; ++d) a[d] = get_global_id(d); }",
    "OUTLINED_KERNEL void k(ARRAYS) { a[0] = 1; }",
    "OUTLINED_KERNEL void k(int n, ARRAYS) { a[0] = 1; }",
    "OUTLINED_KERNEL void k(int (*a)[3]) { a[0][0] = 1; }",
    "OUTLINED_KERNEL void k(int a /* first */) { a; }",
    "OUTLINED_KERNEL void k() { }",
    "OUTLINED_KERNEL void k(int a);",
    "OUTLINED_KERNEL void k(int a\n#if B\n    , int b\n#endif\n    ) { a; }",
    "OUTLINED_KERNEL void k(int a) { a;",
    "OUTLINED_KERNEL void k(int a",
    'OUTLINED_KERNEL void k(int a) { "; }',
    "",
]


@pytest.mark.parametrize("code", UNTOUCHED)
def test_what_is_not_understood_stays_as_it_is(code):
    assert outlined(code) == (code, frozenset())


def test_what_stands_around_chunk_kernels_stays_as_it_is():
    text = outlined(PLACES)[0]
    assert text.startswith(PLACES[: PLACES.index("OUTLINED_KERNEL")])
    assert text.count("OUTLINED_KERNEL void") == text.count("noinline") == 2
    assert "a[i] = helper" in text


@pytest.mark.slow_cases("grid0")
@pytest.mark.parametrize("grid", [((8,), (1,)), ((8,), (4,)), ((6, 2), (3, 1))])
def test_work_items_know_their_places(grid):
    context = runtime_context()
    got = []
    for code in (PLACES, outlined(PLACES)[0]):
        program = make(context, PRELUDE + code)
        array = from_host(context, np.zeros(60, "int32"))
        for name in ("places", "places_too"):
            arguments = (np.uint64(60), array.base_data, np.uint64(0))
            cl.Kernel(program, name)(context.queue, *grid, *arguments)
        got.append(array.get())
    np.testing.assert_array_equal(got[1], got[0])
    assert got[0].any()


def on_pocl(context):
    return context.device.platform.name.strip() == "Portable Computing Language"


def test_a_driver_that_copies_bodies_is_given_functions(monkeypatch):
    sources = []
    monkeypatch.setattr(programs, "make", lambda *args, **kwargs: sources.append(args[1]) or make(*args, **kwargs))
    context = Context("opencl")
    code = "OUTLINED_KERNEL void k(GLOBAL_MEM int *a, ga_size n) { a[get_global_id(0)] = n; }"
    kernels = compile_kernels([Kernel(code, "k", [BUFFER, SIZE])], context)
    array = from_host(context, np.zeros(3, "int32"))
    kernels["k"].call(3, 1, array, 7)
    np.testing.assert_array_equal(array.get(), 7)
    assert ["noinline" in source for source in sources] == [on_pocl(context)]


def test_an_error_shows_the_code_as_it_was_written():
    code = "OUTLINED_KERNEL void k(GLOBAL_MEM int *a) {\n    a[0] = missing;\n}"
    with pytest.raises(BuildError) as caught:
        compile_kernels([Kernel(code, "k", [BUFFER])], runtime_context())
    assert "noinline" not in str(caught.value)
    assert "missing" in caught.value.source
