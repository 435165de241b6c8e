"""A small file of a plan, written by hand: ``f(x)`` returns twice `x`, and adds it to the shared value `total`."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optdb.runtime.device_profiles import DEVICE_KINDS
from optdb.runtime.exported.archive import pack
from optdb.runtime.exported.sources import SourceError, read_program
from optdb.runtime.records import array_bytes

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


def number(*values: Any, dtype: str = "uint64") -> dict[str, Any]:
    """Return the record of a kernel argument that is a number."""
    return {"kind": "number", "dtype": dtype, "values": list(values)}


def axis(argument: int, axis: int) -> dict[str, Any]:
    return {"kind": "axis", "argument": argument, "axis": axis}


def arithmetic(op: str, left: Any, right: Any) -> dict[str, Any]:
    return {"kind": "arithmetic", "op": op, "left": left, "right": right}


def scalar(op: str, dtype: str, *operands: Any) -> dict[str, Any]:
    return {"kind": "scalar", "op": op, "dtype": dtype, "operands": list(operands)}


def guard(op: str, left: Any, right: Any) -> dict[str, Any]:
    return {"op": op, "left": left, "right": right}


def workspace(nbytes: Any, own_buffer: bool = False) -> dict[str, Any]:
    return {"kind": "workspace", "nbytes": nbytes, "own_buffer": own_buffer}


def upload(target: int, offset: Any, value: Any) -> dict[str, Any]:
    return {"kind": "upload", "target": target, "offset": offset, "value": value}


def copy_of(target: int, target_offset: Any, source: int, source_offset: Any, nbytes: Any) -> dict[str, Any]:
    places = {"target": target, "target_offset": target_offset, "source": source, "source_offset": source_offset}
    return {"kind": "copy", **places, "nbytes": nbytes}


def fill(target: int, offset: Any, nbytes: Any, pattern: str) -> dict[str, Any]:
    return {"kind": "fill", "target": target, "offset": offset, "nbytes": nbytes, "pattern": pattern}


def of_argument(argument: int) -> dict[str, Any]:
    return {"kind": "argument", "argument": argument}


def of_numbers(dtype: str, *numbers: Any) -> dict[str, Any]:
    return {"kind": "numbers", "dtype": dtype, "numbers": list(numbers)}


def table(name: str, array: Any, *numbers: Any) -> dict[str, Any]:
    return {"kind": "table", "table": name, "array": array, "numbers": list(numbers)}


def reshaped(array: Any, *shape: Any) -> dict[str, Any]:
    return {"kind": "reshaped", "array": array, "shape": list(shape)}


def array_result(
    memory: int, shape: Sequence[Any], strides: Sequence[int], dtype: str = "float32", offset: int = 0
) -> dict[str, Any]:
    return {
        **{"kind": "array", "dtype": dtype, "memory": memory, "offset": offset},
        **{"shape": list(shape), "strides": list(strides)},
    }


STATE = {"kind": "shared", "state": 0}
LAUNCH: dict[str, Any] = {
    "kind": "launch",
    "kernel": {"program": 0, "function_name": "twice"},
    "global_size": [4],
    "local_size": [2],
    "args": [number("$0"), 0, number(0), 1, number(0), 2],
    "array_slots": [1, 3],
}

TRACE: dict[str, Any] = {
    "compute_units": 2,
    "dtypes": [],
    "entries": [axis(0, 0), arithmetic("*", "$0", 4)],
    "guards": [guard("==", "$0", 3)],
    "arguments": [["$0"]],
    "memories": [workspace("$1"), workspace("$1"), STATE],
    "commands": [upload(0, 0, of_argument(0)), LAUNCH],
    "results": [array_result(1, ["$0"], [4])],
}

ARGUMENT: dict[str, Any] = {
    "name": "x",
    "dtype": "float32",
    "broadcastable": [False],
    "strict": False,
    "allow_downcast": None,
    "default": None,
    "floats": True,
}

MANIFEST: dict[str, Any] = {
    "about": "",
    "states": [{"name": "total", "value": "arrays/0.npy", "broadcastable": [False]}],
    "programs": [{"source": "programs/0.cl", "kernels": KERNELS}],
    "methods": [
        {
            "name": "f",
            "signature": {"arguments": [ARGUMENT], "returns": "single", "keys": None},
            "traces": [{"device_kind": device_kind, **TRACE} for device_kind in DEVICE_KINDS],
        }
    ],
}

MEMBERS = {"arrays/0.npy": array_bytes(np.zeros(3, np.float32)), "programs/0.cl": SOURCE.encode()}

#: A copy of `MANIFEST` with a second argument, and with all kinds of commands, sources and results.
LARGER = copy.deepcopy(MANIFEST)
_METHOD = LARGER["methods"][0]
_METHOD["signature"]["returns"] = "list"
_METHOD["signature"]["arguments"].append(
    {**_METHOD["signature"]["arguments"][0], "name": "y", "dtype": "int32", "floats": False}
)
_METHOD["traces"] = [
    {
        **copy.deepcopy(TRACE),
        "device_kind": device_kind,
        "compute_units": 4,
        "entries": [
            *(axis(0, 0), arithmetic("*", "$0", 4), axis(1, 0), arithmetic("*", "$2", 8)),
            *({"kind": "compute_units"}, arithmetic("ceil", "$0", "$4"), arithmetic("max", "$5", 2)),
            *(scalar("true_div", "float32", "$0", 2), scalar("cast", "int64", "$7")),
        ],
        "guards": [guard("==", "$0", 3), guard("==", "$2", "$0"), guard("<=", "$8", 5), guard("<", 0.5, "$7")],
        "arguments": [["$0"], ["$2"]],
        "memories": [
            *(workspace("$1"), workspace("$1"), STATE, workspace("$3")),
            *({"kind": "constant", "array": "arrays/0.npy"}, workspace(64, own_buffer=True)),
        ],
        "commands": [
            *TRACE["commands"],
            upload(3, 0, table("indexes", of_argument(1), "$0", 0)),
            upload(5, 8, of_numbers("float32", "$7", 1, "inf")),
            upload(5, 32, reshaped(table("distinct", of_argument(1)), "$2", 1)),
            copy_of(1, 0, 4, 0, "$1"),
            fill(0, 4, 8, "0000803f"),
            copy_of(2, 4, 0, 0, 8),
        ],
        "results": [
            *TRACE["results"],
            array_result(3, ["$2", 2], [-8, 0], "int64", offset=16),
            {"kind": "numbers", "dtype": "int64", "numbers": ["$5", "$2"], "ndim": 1},
            {"kind": "constant", "array": "arrays/0.npy"},
            {"kind": "host", "value": table("mentions", of_argument(1))},
        ],
    }
    for device_kind in DEVICE_KINDS
]


def plan(path: Path, source: str = SOURCE, members: dict[str, bytes] | None = None, **changes: Any) -> Path:
    """Write the file; `changes` map paths in the manifest, joined by '__', to new values."""
    manifest = copy.deepcopy(MANIFEST)
    with contextlib.suppress(SourceError):
        manifest["programs"][0]["kernels"] = {name: list(params) for name, params in read_program(source).items()}
    for place, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in place.split("__")]
        inner: Any = manifest
        for part in parents:
            inner = inner[part]
        inner[last] = value
    pack(path, manifest, {**MEMBERS, "programs/0.cl": source.encode()} if members is None else members)
    return path


def trace_with(**changes: Any) -> dict[str, Any]:
    """Return arguments for `plan` that make the same changes in the traces for both kinds of device."""
    return {f"methods__0__traces__{trace}__{name}": value for trace in (0, 1) for name, value in changes.items()}
