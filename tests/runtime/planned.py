"""A small file of a plan, made by hand: ``f(x)`` gives twice `x`, and adds it to the shared value `total`."""

from __future__ import annotations

import contextlib
import copy

import numpy as np

from optdb.runtime.exported.archive import array_bytes, pack
from optdb.runtime.exported.sources import SourceError, read_program

SOURCE = """
__kernel void twice(ulong n, __global float *x, ulong x_off, __global float *z, ulong z_off, __global float *t)
{
    x = (__global float *)((__global char *)x + x_off);
    z = (__global float *)((__global char *)z + z_off);
    for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) {
        z[i] = 2 * x[i];
        t[i] += x[i];
    }
}
"""


KERNELS = {name: list(params) for name, params in read_program(SOURCE).items()}


def _number(value, dtype="uint64"):
    return ["number", dtype, [value]]


TRACE = {
    "units": 2,
    "flags": [],
    "entries": [["axis", 0, 0], ["*", "$0", 4]],
    "guards": [["==", "$0", 3]],
    "arguments": [["$0"]],
    "memories": [{"nbytes": "$1", "bare": False}, {"nbytes": "$1", "bare": False}, {"state": 0}],
    "commands": [
        ["upload", 0, 0, ["argument", 0]],
        [
            *("launch", 0, "twice", [4], [2]),
            [_number("$0"), ["memory", 0], _number(0), ["memory", 1], _number(0), ["memory", 2]],
            [1, 3],
        ],
    ],
    "outlets": [{"dtype": "float32", "memory": 1, "offset": 0, "shape": ["$0"], "strides": [4]}],
}

ARGUMENT = {
    "name": "x",
    "dtype": "float32",
    "broadcastable": [False],
    "strict": False,
    "allow_downcast": None,
    "default": None,
    "floats": True,
}

MANIFEST = {
    "about": "",
    "states": [{"name": "total", "broadcastable": [False], "array": "arrays/0.npy"}],
    "programs": [{"source": "programs/0.cl", "kernels": KERNELS}],
    "methods": [
        {
            "name": "f",
            "signature": {"arguments": [ARGUMENT], "returns": "single", "keys": None},
            "traces": [{"flavour": flavour, **TRACE} for flavour in ("cpu", "gpu")],
        }
    ],
}

MEMBERS = {"arrays/0.npy": array_bytes(np.zeros(3, np.float32)), "programs/0.cl": SOURCE.encode()}


def plan(path, source=SOURCE, members=None, **changes):
    """Write the file; `changes` are of the manifest: a path with '__' between its parts, and what goes there."""
    manifest = copy.deepcopy(MANIFEST)
    with contextlib.suppress(SourceError):
        manifest["programs"][0]["kernels"] = {name: list(params) for name, params in read_program(source).items()}
    for place, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in place.split("__")]
        inner = manifest
        for part in parents:
            inner = inner[part]
        inner[last] = value
    pack(path, manifest, {**MEMBERS, "programs/0.cl": source.encode()} if members is None else members)
    return path
