"""Programs that declare their built-in functions themselves give the same results as with the driver's header."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from optdb.runtime import build, declarations
from optdb.runtime.build import BuildError
from optdb.runtime.context import Context
from optdb.runtime.declarations import declared
from optdb.runtime.library import cl
from tests.effort import is_quick
from tests.opencl_device import runtime_context

#: These numbers are inside and outside of the domains of most functions.
NUMBERS = np.array([0.25, -0.75, 1.5, -0.0, 3.7, np.inf, -np.inf, np.nan] * 2)


@pytest.fixture(autouse=True)
def with_header():
    if not runtime_context().profile.quirks.parses_large_header:
        pytest.skip("the driver parses no large header")


def with_quirk(value: bool) -> Context:
    """Return a context whose device has, or has not, the quirk `parses_large_header`."""
    context = Context(runtime_context().spec)
    quirks = replace(context.profile.quirks, parses_large_header=value)
    context.profile = replace(context.profile, quirks=quirks)
    return context


def arguments(signature, scalar, width):
    """Return the text of a call's arguments for a signature: vectors are a, b and c, and each number is s."""
    taken = re.search(r"\((.*)\)", signature)[1].split(", ")
    vectors = iter("abc")
    given = {"S": lambda: "s", "int": lambda: "2", "N": lambda: f"(int{width})2"}
    return ", ".join(given.get(kind, lambda: next(vectors))() for kind in taken)


def results(source, context, values, words):
    """Run the kernel `k`, and return its results as `words` words of 8 bytes."""
    program = build.make(context, source)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    given = cl.Buffer(context.cl_context, flags, hostbuf=values)
    got = np.zeros(words, np.uint64)
    taken = cl.Buffer(context.cl_context, flags, hostbuf=got)
    cl.Kernel(program, "k")(context.queue, (1,), None, given, taken)
    cl.enqueue_copy(context.queue, got, taken)
    return got


def statements(table, scalar, width):
    """Return statements that call all functions in a table; each one writes a result to 16 words of its own."""
    lines = []
    for signature, names in table.items():
        for name in names.split():
            call = f"{name}({arguments(signature, scalar, width)})"
            kind = {"T": scalar, "N": "int", "U": f"u{scalar.lstrip('u')}", "R": None}[signature[0]]
            if kind is None:
                kind = "int" if not width else {"float": "int", "double": "long"}[scalar]
            place = f"(__global {kind}{'' if width == '3' else width} *)(out + 16 * {len(lines)})"
            # An assignment of a vector of three elements may also write a fourth element.
            lines.append(f"vstore3({call}, 0, {place});" if width == "3" else f"*{place} = {call};")
    return lines


TABLES = {
    "reals": (declarations._OF_REALS, ("float", "double"), ("", "4")),
    "with numbers": (declarations._WITH_NUMBERS, ("float", "double"), ("2", "16")),
    "floats": (declarations._OF_FLOATS, ("float",), ("",)),
    "whole numbers": (declarations._OF_WHOLE, ("char", "ushort", "int", "ulong"), ("", "8")),
    "whole and numbers": (declarations._OF_WHOLE_WITH_NUMBERS, ("short", "uint"), ("3",)),
}


@pytest.mark.slow_cases(*[name for name in TABLES if name != "whole and numbers"])
@pytest.mark.parametrize("name", TABLES)
def test_functions_of_elements(name, caplog):
    table, scalars, widths = TABLES[name]
    kinds = [(scalar, width) for scalar in scalars for width in widths]
    if is_quick() and len(widths) > 1 < len(scalars):
        # Each scalar type and each width occurs once or twice.
        kinds = [kind for kind in kinds if (scalars.index(kind[0]) + widths.index(kind[1])) % 2 == 0]
    for scalar, width in kinds:
        lines = statements(table, scalar, width)
        kind = f"{scalar}{width}"
        reads = f"a = *in, b = in[1], c = in[2]; {scalar} s = *(__global {scalar} *)in;"
        body = "\n".join(lines)
        source = f"__kernel void k(__global {kind} *in, __global ulong *out) {{ {kind} {reads}\n{body}\n}}"
        dtype = {"char": "int8", "short": "int16", "ushort": "uint16", "uint": "uint32", "ulong": "uint64"}
        values = np.resize(NUMBERS, 64)
        if scalar not in ("float", "double"):
            values = np.arange(64) * 37 - 90
        values = values.astype(dtype.get(scalar, {"int": "int32", "double": "float64"}.get(scalar, "float32")))
        with caplog.at_level("DEBUG", "optdb.runtime.build"):
            own = results(source, with_quirk(True), values, 16 * len(lines))
        assert "all declarations" not in caplog.text
        np.testing.assert_array_equal(own, results(source, with_quirk(False), values, 16 * len(lines)))


OTHERS = """
__kernel void k(__global float *in, __global ulong *out) {
    __local int place[4];
    place[0] = 1; place[1] = 2;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_add(place, 3); atomic_inc(place + 1); atomic_cmpxchg(place + 1, 3, 9); atomic_max(place, -1);
    out[0] = place[0] + 100 * place[1] + 10000 * get_global_size(0) + get_work_dim();
    out[1] = as_uint(in[0]); out[2] = as_ulong2(vload4(0, in)).y; out[3] = convert_uchar_sat(300.0f);
    out[4] = any((int2)(-1, 0)) + 2 * all((int2)(-1, 0)); out[5] = select(1, 2, 1);
    vstore_half(in[1], 0, (__global half *)(out + 6));
    out[7] = convert_int_rte(vload_half(0, (__global half *)out + 24));
    out[8] = as_uint(NAN); out[9] = as_uint(INFINITY); out[10] = as_uint(FLT_MIN); out[11] = INT_MIN;
    vstore2((float2)(M_PI, NAN), 12, (__global float *)out); out[13] = sizeof(size_t) + sizeof(ushort3);
}
"""


def test_other_functions_types_and_constants(caplog):
    values = np.array([1.5, -2.25, 3, 4], "float32")
    with caplog.at_level("DEBUG", "optdb.runtime.build"):
        own = results(OTHERS, with_quirk(True), values, 16)
    assert "all declarations" not in caplog.text
    np.testing.assert_array_equal(own, results(OTHERS, with_quirk(False), values, 16))


UNDECLARED = "__kernel void k(__global float *in, __global ulong *out) { out[0] = dot(vload4(0, in), vload4(0, in)); }"


def test_what_is_not_declared_is_built_with_the_header(caplog):
    context = with_quirk(True)
    build.make(context, "__kernel void k() { }")
    with caplog.at_level("DEBUG", "optdb.runtime.build"):
        assert results(UNDECLARED, context, np.array([1, 2, 3, 4], "float32"), 1) == [30]
    assert "building the program again, with all declarations" in caplog.text


def test_lines_of_a_refused_program_are_those_of_its_source():
    with pytest.raises(BuildError) as raised:
        build.make(with_quirk(True), "__kernel void k(__global float *in) {\n    in[0] = sin(no_such_name);\n}")
    assert ":2:" in raised.value.log
    assert "OPTDB_CONST" not in str(raised.value)


def test_a_driver_that_takes_no_declarations_is_asked_once(monkeypatch):
    asked = []

    def refused(source, has_double):
        asked.append(source)
        return "this is no OpenCL C"

    monkeypatch.setattr(declarations, "declared", refused)
    context = with_quirk(True)
    for number in range(3):
        build.make(context, f"__kernel void k(__global int *a) {{ a[0] = {number}; }}")
    assert len(asked) == 1


def test_without_double_precision_none_is_declared():
    used = "sin(1.0f); vload4(0, a); select(a, b, c); convert_int(a); vstore_half(a, b, c);"
    assert "double" not in declared(used, False)
    assert "double" in declared(used, True)


def test_the_source_of_a_program_is_its_own():
    source = "__kernel void k(__global float *a) { a[0] = sin(a[0]); }"
    context = with_quirk(True)
    assert build.source_of(context, build.make(context, source)) == source
