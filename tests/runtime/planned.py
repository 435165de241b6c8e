"""A small file of a plan, made by hand: ``f(x)`` gives twice `x`, and adds it to the shared value `total`."""

from __future__ import annotations

import contextlib
import copy

import numpy as np

from optdb.runtime.device_profiles import DEVICE_KINDS
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
            "traces": [{"flavour": device_kind, **TRACE} for device_kind in DEVICE_KINDS],
        }
    ],
}

MEMBERS = {"arrays/0.npy": array_bytes(np.zeros(3, np.float32)), "programs/0.cl": SOURCE.encode()}

#: Like `MANIFEST`, with a second argument, and with all kinds of commands, sources and results.
LARGER = copy.deepcopy(MANIFEST)
_METHOD = LARGER["methods"][0]
_METHOD["signature"]["returns"] = "list"
_METHOD["signature"]["arguments"].append(
    {**_METHOD["signature"]["arguments"][0], "name": "y", "dtype": "int32", "floats": False}
)
_METHOD["traces"] = [
    {
        **copy.deepcopy(TRACE),
        "flavour": device_kind,
        "units": 4,
        "entries": [
            *(["axis", 0, 0], ["*", "$0", 4], ["axis", 1, 0], ["*", "$2", 8], ["units"], ["ceil", "$0", "$4"]),
            *(["max", "$5", 2], ["true_div", "float32", "$0", 2], ["cast", "int64", "$7"]),
        ],
        "guards": [["==", "$0", 3], ["==", "$2", "$0"], ["<=", "$8", 5], ["<", 0.5, "$7"]],
        "arguments": [["$0"], ["$2"]],
        "memories": [
            *({"nbytes": "$1", "bare": False}, {"nbytes": "$1", "bare": False}, {"state": 0}),
            *({"nbytes": "$3", "bare": False}, {"array": "arrays/0.npy", "bare": True}, {"nbytes": 64, "bare": True}),
        ],
        "commands": [
            *TRACE["commands"],
            ["upload", 3, 0, ["table", "indexes", [["argument", 1], "$0", 0]]],
            ["upload", 5, 8, ["value", "float32", ["$7", 1, "inf"]]],
            ["upload", 5, 32, ["shaped", ["table", "distinct", [["argument", 1]]], ["$2", 1]]],
            ["copy", 1, 0, 4, 0, "$1"],
            ["fill", 0, 4, 8, "0000803f"],
            ["copy", 2, 4, 0, 0, 8],
        ],
        "outlets": [
            *TRACE["outlets"],
            {"dtype": "int64", "memory": 3, "offset": 16, "shape": ["$2", 2], "strides": [-8, 0]},
            {"dtype": "int64", "values": ["$5", "$2"], "vector": True},
            {"dtype": "float32", "array": "arrays/0.npy"},
            {"dtype": "int64", "source": ["table", "mentions", [["argument", 1]]]},
        ],
    }
    for device_kind in DEVICE_KINDS
]


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


def trace_with(**changes):
    """Return changes, for `plan`, of the traces for both kinds of device."""
    return {f"methods__0__traces__{trace}__{name}": value for trace in (0, 1) for name, value in changes.items()}
