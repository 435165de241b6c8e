"""Computes the results of many scalar programs with one kernel, for tests."""

from __future__ import annotations

import functools

import numpy as np
import pyopencl as cl
import pytest

from optdb.codegen.scalars.code import scalar_code
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.codegen.scalars.types import C_TYPES
from optdb.runtime.device_profiles import profile_of

#: Numbers for which some functions have special definitions.
SPECIAL = [np.nan, np.inf, -np.inf, -0.0]


@functools.cache
def opencl():
    """Return a context and a queue on the first device that can build a program; Oclgrind is tried last."""
    devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    for device in sorted(devices, key=lambda device: "Oclgrind" in device.platform.name):
        try:
            context = cl.Context([device])
            cl.Program(context, "kernel void f(global int *x) { x[0] = 1; }").build()
        except cl.Error:
            continue
        return context, cl.CommandQueue(context)
    pytest.skip("no OpenCL device")


def of_scalar(name, arrays, out=None, **properties):
    """Return a program that applies a scalar op to arrays; the result has dtype `out`, or the first array's dtype."""
    dtypes = [array.dtype.name for array in arrays]
    return ScalarProgram.of(Scalar(name, out or dtypes[0], tuple(properties.items())), dtypes)


def block(program, positions, result, width):
    """Return code that applies a program to `width` elements at a time; its arrays are at `positions` in a buffer."""
    (out,) = program.out_dtypes
    types = [C_TYPES[d] + ("" if width == 1 else str(width)) for d in (*program.dtypes, out)]
    names = [f"i{i}[n]" for i in range(len(program.dtypes))]
    lines = [f"global {kind} *i{i} = (global {kind} *)(data + {positions[i]});" for i, kind in enumerate(types[:-1])]
    lines.append(f"global {types[-1]} *z = (global {types[-1]} *)(data + {result});")
    if width > 1:
        lines += [f"const {kind} v{i} = {name};" for i, (kind, name) in enumerate(zip(types, names))]
        names = [f"v{i}" for i in range(len(program.dtypes))]
    wrong = profile_of(opencl()[1].device).quirks.wrong_vector_functions
    code = scalar_code(program, names, ["z[n]"], width=width, wrong_functions=wrong)
    return code.helpers, "{\n" + "\n".join([*lines, code.once, code.statements]) + "\n}\n"


def device_results(cases, width=1):
    """Return the results of all programs; one kernel computes them, because building hundreds would take longer."""
    context, queue = opencl()
    helpers, blocks, results, data = {}, [], [], b""
    for program, arrays in cases:
        positions = []
        for array in arrays:
            positions.append(len(data))
            data += array.tobytes() + b"\0" * (-array.nbytes % 128)
        helper, body = block(program, positions, len(data), width)
        results.append((program.out_dtypes[0], len(arrays[0]), len(data)))
        data += b"\0" * (8 * len(arrays[0]) + -8 * len(arrays[0]) % 128)
        blocks.append(body)
        for function in helper.split("\n}\n"):
            if function.strip():
                helpers[function] = f"{function}\n}}\n"
    kernel = "kernel void every_op(global char *data) {\nsize_t n = get_global_id(0);\n" + "".join(blocks) + "}"
    program = cl.Program(context, "#pragma OPENCL FP_CONTRACT OFF\n" + "".join(helpers.values()) + kernel).build()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(context, flags, hostbuf=bytearray(data))
    cl.Kernel(program, "every_op")(queue, (results[0][1] // width,), (1,), buffer)
    computed = np.empty(len(data), np.uint8)
    cl.enqueue_copy(queue, computed, buffer)
    return [np.frombuffer(computed.data, out, length, position) for out, length, position in results]


def with_poles(gamma, x):
    """Replace values of the gamma function at its poles by the values that C99 and SciPy (since 1.15) define."""
    at_zero = np.copysign(np.inf, x.astype(gamma.dtype))
    return np.where(x == 0, at_zero, np.where((x < 0) & (np.floor(x) == x), gamma.dtype.type("nan"), gamma))


def values(dtype, seed=0):
    """Return numbers of a dtype, including its limits."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, 64).astype(bool)
    if dtype.startswith("float"):
        some = [*SPECIAL, 0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 20.0, -20.0]
        return np.concatenate([some, rng.uniform(-5, 5, 64 - len(some))]).astype(dtype)
    info = np.iinfo(dtype)
    some = [info.min, info.max, 0, 1, 2, 3, info.max - 1]
    return np.concatenate([np.array(some, dtype), rng.integers(0, 9, 64 - len(some)).astype(dtype)])
