"""Valid files from which mutants are made, and arguments for their functions.

One file is written by hand; it contains every kind of command, of source and of result. If Theano can be imported, the
other files are exported from small functions. The exported files are kept in a folder, because an export takes some
time.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optdb.runtime.exported.archive import DIGEST, MANIFEST
from tests.runtime.planned import LARGER, MEMBERS

__all__ = ["Original", "corpus"]

X = np.array([1, 2, 3], np.float32)
Y = np.array([2, 0, 1], np.int32)


@dataclass(frozen=True)
class Original:
    """A valid file: its manifest (without the list of members), its other members, and arguments for its functions."""

    name: str
    manifest: dict[str, Any]
    members: Mapping[str, bytes]
    arguments: Mapping[str, tuple[Any, ...]]


def corpus(folder: Path) -> list[Original]:
    """Return the file that is written by hand, and the exported files in a folder."""
    found = [Original("by hand", LARGER, MEMBERS, {"f": (X, Y)})]
    return found + [_original(path) for path in sorted(folder.glob("*.optdb"))]


def _original(path: Path) -> Original:
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(members.pop(MANIFEST))
    del members[DIGEST], manifest["members"]
    arguments = json.loads(path.with_suffix(".json").read_text())
    return Original(path.stem, manifest, members, {name: tuple(map(_value, args)) for name, args in arguments.items()})


def _value(spec: list[Any]) -> np.ndarray:
    """Return an array of zeros with a given dtype and shape."""
    dtype, shape = spec
    return np.zeros(shape, dtype)


def write_exports(folder: Path) -> None:
    """Export small functions to a folder, unless it already has exported files."""
    if list(folder.glob("*.optdb")):
        return
    import theano
    import theano.tensor as tt

    import optdb  # imported before theano; loading a file needs neither library

    folder.mkdir(parents=True, exist_ok=True)
    floats = np.random.RandomState(0).standard_normal
    x, y, rate, rows = tt.fmatrix("x"), tt.ivector("y"), tt.fscalar("rate"), tt.lvector("rows")
    w = theano.shared(floats((4, 3)).astype("float32"), "w")
    table = theano.shared(floats((9, 4)).astype("float32"), "table")
    p = tt.nnet.softmax(x.dot(w))
    loss = -tt.log(p)[tt.arange(y.shape[0]), y].mean()
    steps = [(w, tt.cast(w - rate * theano.grad(loss, w), "float32"))]
    batch = np.ones((6, 4), "float32")
    mode = theano.Mode("py", "fast_run")
    for name, inputs, outputs, updates, args in (
        ("train", [x, y, rate], loss, steps, (batch, np.zeros(6, "int32"), np.float32(0.1))),
        (
            "rows",
            [rows, x],
            table[rows] * x,
            [(table, tt.inc_subtensor(table[rows], x))],
            (np.zeros(6, "int64"), batch),
        ),
        ("views", [x], [x[::-1, 1:], x.T.flatten(), x.sum(axis=0), x.max()], [], (batch,)),
    ):
        function = theano.function(inputs, outputs, updates=updates, mode=mode)
        sim = optdb.SimulatorOCL(function)
        sim.export(folder / f"{name}.optdb", [args])
        spec = [[np.asarray(arg).dtype.name, np.shape(arg)] for arg in args]
        (folder / f"{name}.json").write_text(json.dumps({"call": spec}))
