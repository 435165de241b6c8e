"""Kernels outside of graphs: how they are described, compiled, checked and launched."""

from __future__ import annotations

import copy
import types
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb.codegen.kernels import (
    ARRAY,
    BUFFER,
    LOCAL,
    SIZE,
    SSIZE,
    SSIZES,
    BuildError,
    Kernel,
    KernelArgumentError,
    UnsupportedKernel,
    compile_kernels,
    ctype,
    one_program,
    try_compile,
)
from optdb.runtime import build
from optdb.runtime.arrays import empty, from_host
from tests.opencl_device import runtime_context

FILL = """
KERNEL void fill(GLOBAL_MEM {ctype} *a, ga_size a_off, ga_size n, {ctype} value) {{
    a = (GLOBAL_MEM {ctype} *)((GLOBAL_MEM char *)a + a_off);
    for (ga_size i = GID_0 * LDIM_0 + LID_0; i < n; i += GDIM_0 * LDIM_0)
        a[i] = value;
}}
"""


def fill_kernel(dtype="float32"):
    kernel = Kernel(FILL.format(ctype=ctype(dtype)), "fill", [ARRAY, SIZE, dtype], Kernel.get_flags(dtype))
    return compile_kernels([kernel], runtime_context())["fill"]


def zeros(n, dtype="float32"):
    return from_host(runtime_context(), np.zeros(n, dtype))


# Launch arguments


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("bool", True),
        ("int8", -128),
        ("uint8", 255),
        ("int16", -(2**15)),
        ("uint16", 2**16 - 1),
        ("int32", -(2**31)),
        ("uint32", 2**32 - 1),
        ("int64", -(2**63)),
        ("uint64", 2**64 - 1),
        ("float16", 1.5),
        ("float32", 3),
        ("float64", 1e300),
        ("complex64", 1 + 2j),
        ("complex128", 1.0),
    ],
)
def test_numbers_arrive(dtype, value):
    a = zeros(3, dtype)
    fill_kernel(dtype).scall(3, a, 3, value)
    np.testing.assert_array_equal(a.get(), np.full(3, value, dtype))


def test_many_numbers_arrive_in_one_argument():
    code = """
    KERNEL void unpack(GLOBAL_MEM ga_long *a, ga_size a_off, long16 s) {
        a = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)a + a_off);
        vstore16(s, 0, a);
    }"""
    kernel = compile_kernels([Kernel(code, "unpack", [ARRAY, "ssize16"])], runtime_context())["unpack"]
    a = zeros(16, "int64")
    numbers = [-(2**63), 2**63 - 1, *range(-14, 0)]
    for form in (numbers, tuple(numbers), SSIZES.pack(numbers)):
        kernel.call(1, 1, a, form)
        assert a.get().tolist() == numbers
    kernel.call(1, 1, a, [5])
    assert a.get().tolist() == [5] + [0] * 15
    for wrong, message in [
        (range(17), "17 numbers"),
        ([0.5], "integers"),
        (3, "integers"),
        ([2**63], "hold"),
    ]:
        with pytest.raises(KernelArgumentError, match=message):
            kernel.call(1, 1, a, wrong)


@pytest.mark.slow
@given(n=st.integers(0, 300), group=st.sampled_from([1, 2, 16]), groups=st.integers(1, 5))
def test_launches_of_any_size(n, group, groups):
    a = zeros(300)
    fill_kernel().call(group * groups, group, a, n, 1)
    np.testing.assert_array_equal(a.get(), np.arange(300) < n)


@given(n=st.integers(0, 1000))
def test_automatic_launches_cover_everything(n):
    code = "KERNEL void k(GLOBAL_MEM int *a, ga_size n) { size_t i = get_global_id(0); if (i < n) a[i] += 1; }"
    kernel = compile_kernels([Kernel(code, "k", [BUFFER, SIZE])], runtime_context())["k"]
    a = zeros(1000, "int32")
    kernel.scall(n, a, n)
    np.testing.assert_array_equal(a.get(), np.arange(1000) < n)


@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 5), (1, 1, 1), (3, 0)])
def test_automatic_launches_in_more_dimensions(shape):
    dims = len(shape)
    at = [f"GID_{d} * LDIM_{d} + LID_{d}" for d in range(dims)]
    inside = " && ".join(f"{at[d]} < {shape[d]}" for d in range(dims))
    place = at[0]
    for d in range(1, dims):
        place = f"({place}) * {shape[d]} + {at[d]}"
    code = f"KERNEL void k(GLOBAL_MEM int *a, ga_size a_off) {{ if ({inside}) a[{place}] += 1; }}"
    a = zeros(shape, "int32")
    compile_kernels([Kernel(code, "k", [ARRAY])], runtime_context())["k"].scall(shape, a)
    np.testing.assert_array_equal(a.get(), np.ones(shape, "int32"))


def test_views_begin_where_they_begin():
    a = zeros(10)
    fill_kernel().scall(3, a[4:], 3, 1)
    np.testing.assert_array_equal(a.get(), [0, 0, 0, 0, 1, 1, 1, 0, 0, 0])


def test_an_empty_array_is_a_null_pointer():
    code = "KERNEL void k(GLOBAL_MEM float *a, ga_size a_off, GLOBAL_MEM int *is_null) { *is_null = a == 0; }"
    kernel = compile_kernels([Kernel(code, "k", [ARRAY, BUFFER])], runtime_context())["k"]
    answer = zeros(1, "int32")
    kernel.call(1, 1, zeros(0), answer)
    assert answer.get()[0] == 1


def test_local_memory_and_barriers():
    code = """
    KERNEL void turn(GLOBAL_MEM int *a, ga_size a_off, LOCAL_MEM_ARG int *kept) {
        kept[LID_0] = a[LID_0];
        local_barrier();
        a[LID_0] = kept[LDIM_0 - 1 - LID_0];
    }"""
    kernel = compile_kernels([Kernel(code, "turn", [ARRAY, LOCAL])], runtime_context())["turn"]
    a = from_host(runtime_context(), np.arange(8, dtype="int32"))
    kernel.call(8, 8, a, 8 * 4)
    np.testing.assert_array_equal(a.get(), np.arange(8)[::-1])
    kernel.call(8, 8, a, cl.LocalMemory(8 * 4))
    np.testing.assert_array_equal(a.get(), np.arange(8))


def test_a_buffer_is_given_as_itself_or_as_an_array():
    code = "KERNEL void k(GLOBAL_MEM float *a) { a[0] += 1; }"
    kernel = compile_kernels([Kernel(code, "k", [BUFFER])], runtime_context())["k"]
    a = zeros(2)
    kernel.call(1, 1, a)
    kernel.call(1, 1, a.base_data)
    assert a.get()[0] == 2
    with pytest.raises(KernelArgumentError, match="begins 4 bytes into its buffer: declare it as ARRAY"):
        kernel.call(1, 1, a[1:])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), r"takes 3 arguments .*, but 0 were given"),
        ((1, 2, 3, 4), r"takes 3 arguments .*, but 4 were given"),
        ((np.zeros(3), 3, 1), r"argument 0 is a NumPy array of shape \(3,\), not a device array"),
        ((None, 3, 1), "argument 0 is a NoneType, not a device array"),
        (("a", -1, 1), "argument 1 is -1, which a size cannot hold"),
        (("a", 2**64, 1), "argument 1 is 18446744073709551616, which a size cannot hold"),
        (("a", 3.0, 1), "argument 1 is 3.0, not a size"),
        (("a", "a", 1), "argument 1 is a .*Array, not a size"),
        (("a", 3, 1j), "argument 2 is 1j, not a float32"),
        (("a", 3, np.zeros(2)), r"argument 2 is a NumPy array of shape \(2,\), not a float32"),
    ],
)
def test_arguments_that_do_not_fit(args, says):
    a = zeros(3)
    with pytest.raises(KernelArgumentError, match=f"kernel fill:? {says}"):
        fill_kernel().scall(3, *[a if isinstance(arg, str) else arg for arg in args])


def test_arrays_of_another_context_are_refused():
    elsewhere = types.SimpleNamespace(queue=cl.CommandQueue(cl.Context([runtime_context().device])))
    with pytest.raises(KernelArgumentError, match="another context: transfer it"):
        fill_kernel().scall(3, empty(elsewhere, (3,), "float32"), 3, 1)


@pytest.mark.parametrize(
    ("items", "group", "says"),
    [
        (3, 2, "do not divide into groups"),
        ((4, 4), 2, "do not divide into groups"),
        (4, 0, "do not divide into groups"),
        (-2, None, "cannot be launched on"),
        ((), None, "cannot be launched on"),
        ((1, 1, 1, 1), None, "cannot be launched on"),
        (2**20, 2**20, "groups of .* are too large"),
    ],
)
def test_sizes_that_do_not_fit(items, group, says):
    with pytest.raises(KernelArgumentError, match=says):
        fill_kernel().call(items, group, zeros(3), 3, 1)


# Descriptions


def test_flags_say_what_a_device_must_have():
    assert Kernel.get_flags("float64") == ("GA_USE_DOUBLE",)
    assert Kernel.get_flags("float32", "int64") == ()
    assert Kernel.get_flags("float16") == ("GA_USE_HALF", "GA_USE_SMALL")
    assert Kernel.get_flags("complex128", "float64") == ("GA_USE_DOUBLE", "GA_USE_COMPLEX")


def test_flags_come_as_words_or_in_one_string():
    assert Kernel("", "k", [], "GA_USE_DOUBLE | GA_USE_HALF").flags == ("GA_USE_DOUBLE", "GA_USE_HALF")
    with pytest.raises(ValueError, match="kernel k has an unknown flag 'GA_USE_MAGIC'; the flags are GA_USE_SMALL, "):
        Kernel("", "k", [], ["GA_USE_MAGIC"])


def test_a_device_without_double_precision_is_told_before_anything_is_built(monkeypatch):
    monkeypatch.setattr("optdb.codegen.kernels.programs.make", lambda *args, **kwargs: pytest.fail("it was built"))
    small = copy.copy(runtime_context())
    driver = replace(small.profile.driver, device="Small One")
    small.profile = replace(small.profile, driver=driver, float64=False)
    kernel = Kernel("", "k", [], Kernel.get_flags("float64"))
    with pytest.raises(UnsupportedKernel, match=r"kernel k needs GA_USE_DOUBLE.*Small One.*no double precision"):
        compile_kernels([kernel], small)


@pytest.mark.parametrize("param", ["", "sizes", "str", object, 3])
def test_params_that_there_are_not(param):
    with pytest.raises(KernelArgumentError, match="is not a parameter type of a kernel: use"):
        Kernel("", "k", [param])


def test_params_and_code_have_to_agree():
    kernel = Kernel(FILL.format(ctype="float"), "fill", [ARRAY, "float32"])
    with pytest.raises(KernelArgumentError, match=r"takes 4 parameters in its code, but .* describe 3"):
        compile_kernels([kernel], runtime_context())


@pytest.mark.parametrize("name", ["", "a b", "1k"])
def test_names_are_identifiers(name):
    with pytest.raises(ValueError, match="cannot be the name of a kernel"):
        Kernel("", name, [])


def test_a_name_that_is_not_in_the_code():
    kernel = Kernel(FILL.format(ctype="float"), "full", [ARRAY, SIZE, "float32"])
    with pytest.raises(ValueError, match=r"kernel 'full' is not declared in its code, which declares \['fill'\]"):
        compile_kernels([kernel], runtime_context())


def test_two_kernels_of_one_name():
    kernels = [Kernel("a", "k", []), Kernel("b", "k", [])]
    with pytest.raises(ValueError, match="MyOp has two kernels with the same name"):
        compile_kernels(kernels, runtime_context(), "MyOp")


# Builds


def test_theanos_kernels_compile_as_they_are():
    # Kernels written for Theano's GPU back-end include its header, and take the offset as a separate size.
    code = """#include "cluda.h"

    KERNEL void k(GLOBAL_MEM ga_float *a, ga_size a_off, ga_ssize first, ga_size n) {
        ga_size at = max(first, (ga_ssize) 0);
        for (ga_size i = LID_0; i < n; i += LDIM_0)
            a[at + i] = 1;
    }"""
    kernel = compile_kernels([Kernel(code, "k", [BUFFER, SIZE, SSIZE, SIZE])], runtime_context())["k"]
    a = zeros(6)
    kernel.scall(1, a.base_data, a.offset, 2, 3)
    np.testing.assert_array_equal(a.get(), [0, 0, 1, 1, 1, 0])


def test_kernels_of_one_code_and_of_several_are_one_program(monkeypatch):
    built = []
    monkeypatch.setattr(
        "optdb.codegen.kernels.programs.make", lambda *args, **kwargs: built.append(args) or build.make(*args, **kwargs)
    )
    both = "KERNEL void one(GLOBAL_MEM int *a) { a[0] = 1; } KERNEL void two(GLOBAL_MEM int *a) { a[0] += 2; }"
    third = "KERNEL void three(GLOBAL_MEM int *a) { a[0] += 4; }"
    kernels = [Kernel(both, "one", [BUFFER]), Kernel(both, "two", [BUFFER]), Kernel(third, "three", [BUFFER])]
    compiled = compile_kernels(kernels, runtime_context())
    a = zeros(1, "int32")
    for name in ("one", "two", "three"):
        compiled[name].call(1, 1, a)
    assert a.get()[0] == 7
    assert len(built) == 1


def test_an_optional_kernel_is_built_within_a_block_of_one_program(caplog):
    """If an optional kernel does not build, `try_compile` returns None, and the caller uses other kernels."""
    right = Kernel("KERNEL void fine(GLOBAL_MEM int *a) { a[0] = 5; }", "fine", [BUFFER])
    wrong = Kernel("KERNEL void not_built(GLOBAL_MEM int *a) { a[0] = never_declared; }", "not_built", [BUFFER])
    a = zeros(1, "int32")
    with one_program():
        assert try_compile([wrong], runtime_context(), "MyOp", "Other kernels compute it") is None
        found = try_compile([right], runtime_context(), "MyOp", "Other kernels compute it")
        found["fine"].call(1, 1, a)
        assert a.get()[0] == 5
    assert caplog.text.count("Other kernels compute it, because a kernel does not build") == 1


def test_errors_show_the_log_and_the_numbered_source_and_name_the_kernel():
    code = "KERNEL void wrong(GLOBAL_MEM float *a) {\n    a[0] = never_declared;\n}"
    with pytest.raises(BuildError) as caught:
        compile_kernels([Kernel(code, "wrong", [BUFFER])], runtime_context(), "MyOp")
    message, source = str(caught.value), caught.value.source.splitlines()
    line = next(number for number, text in enumerate(source, 1) if "never_declared" in text)
    assert message.startswith("MyOp (kernels: wrong) does not build on ")
    assert f"{line}      a[0] = never_declared;" in message
    assert f":{line}:" in caught.value.log
    assert "never_declared" in caught.value.log
    assert "#define GLOBAL_MEM" not in message
