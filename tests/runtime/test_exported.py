"""Plans in files give the same results, and invalid files are rejected with a message."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optdb.runtime.context import Context
from optdb.runtime.exported import FileError, ShapeError, load, model
from optdb.runtime.exported.archive import Archive, pack
from optdb.runtime.exported.manifest import read
from optdb.runtime.records import array_bytes
from tests.effort import examples
from tests.processes import python
from tests.runtime import planned
from tests.runtime.planned import (
    LAUNCH,
    MANIFEST,
    MEMBERS,
    SOURCE,
    STATE,
    TRACE,
    arithmetic,
    array_result,
    axis,
    copy_of,
    fill,
    guard,
    number,
    of_argument,
    of_numbers,
    plan,
    scalar,
    table,
    trace_with,
    upload,
    workspace,
)

X = np.array([1, 2, 3], np.float32)


def test_a_file_does_what_it_says(tmp_path, context):
    there = load(plan(tmp_path / "f.optdb"), context)
    for step in range(3):
        np.testing.assert_array_equal(there(X), 2 * X)
        np.testing.assert_array_equal(there.f(x=X[::-1]), 2 * X[::-1])
        np.testing.assert_array_equal(there.get("total"), np.full(3, 4.0 * (step + 1)))
    there.set("total", [0, 0, 1])
    there["f"](X)
    np.testing.assert_array_equal(there.get("total"), [1, 2, 4])
    assert there.names == ["total"]
    assert list(there) == ["f"]
    assert there.nbytes["shared"] == 12
    assert there.nbytes["f"] >= 24
    assert "f(x: float32[:])" in repr(there)
    assert "total [3]" in repr(there)
    with pytest.raises(AttributeError, match="no function of that name"):
        there.g  # noqa: B018


def test_other_shapes_are_refused_by_the_rule(tmp_path, context):
    there = load(plan(tmp_path / "f.optdb"), context)
    with pytest.raises(
        ShapeError, match=r"f of .* was not exported for x of shape \(4,\).*\n    x.shape\[0\] == 3\nThe cure"
    ):
        there(np.ones(4, np.float32))
    with pytest.raises(TypeError, match="f, argument x: expected a vector"):
        there(1.0)


def test_a_damaged_file(tmp_path, context):
    path = plan(tmp_path / "f.optdb")
    whole = path.read_bytes()
    for content, words in {
        b"": "is not a complete exported file",
        b"anything": "is not a complete exported file",
        whole[:-30]: "is not a complete exported file",
        whole[30:]: "f.optdb",
        whole.replace(b"2 * x[i]", b"3 * x[i]"): "is not a complete exported file",
        whole.replace(b'"own_buffer":false', b'"own_buffer": true', 1): "is not a complete exported file",
    }.items():
        path.write_bytes(content)
        with pytest.raises(FileError, match=words) as caught:
            load(path, context)
        assert str(path) in str(caught.value)
        assert "The cure" in str(caught.value)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.optdb", context)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9), st.integers(1, 255), st.booleans())
def test_no_byte_can_be_changed(place, by, cut):
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"optdb-test-{os.getpid()}.optdb"
    try:
        whole = plan(path).read_bytes()
        place %= len(whole)
        changed = bytes([whole[place] ^ by])
        path.write_bytes(whole[:place] if cut else whole[:place] + changed + whole[place + 1 :])
        try:
            there = load(path, _context())
        except FileError:
            return
        # The change is in a part of the zip archive that is ignored, such as a date.
        np.testing.assert_array_equal(there(X), 2 * X)
    finally:
        path.unlink(missing_ok=True)


_contexts: list[Context] = []


def _context():
    if not _contexts:
        _contexts.append(Context("opencl"))
    return _contexts[0]


def repacked(path, manifest, members=MEMBERS, compression=zipfile.ZIP_STORED):
    """Write a file, and then write its members to a new archive."""
    pack(path, manifest, members)
    with zipfile.ZipFile(path) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in contents.items():
            file.writestr(name, content)
    return path


def test_other_archives(tmp_path, context):
    path = tmp_path / "f.optdb"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.txt", "a")
    with pytest.raises(FileError, match="not an exported file"):
        load(path, context)
    with pytest.raises(FileError, match="compressed"):
        load(repacked(path, MANIFEST, compression=zipfile.ZIP_DEFLATED), context)
    with pytest.raises(FileError, match=r"has version 4, but this optdb reads version 3.\nThe cure: install a newer"):
        load(plan(path, version=4), context)
    with pytest.raises(FileError, match=r"has version 2, but this optdb reads version 3.\nThe cure: export it again"):
        load(plan(path, version=2), context)
    for version in (0, None, "1", True):
        with pytest.raises(FileError, match="does not name its version"):
            load(plan(path, version=version), context)
    with pytest.raises(FileError, match="not an exported file"):
        load(plan(path, kind="another"), context)
    with pytest.raises(FileError, match="no exported file has"):
        load(plan(path, members={**MEMBERS, "../evil": b"x"}), context)


PICKLED = (
    np.lib.format.magic(1, 0) + b"\x76\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(118)
)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no array",
        PICKLED + b"cos\nsystem\n",
        array_bytes(np.zeros(3, np.float32))[:-1],
        array_bytes(np.zeros(3, np.float32)) + b"more",
        array_bytes(np.zeros(3, "S4")),
        array_bytes(np.zeros(3, ">f4")),
        array_bytes(np.zeros(3, "datetime64[s]")),
        array_bytes(np.zeros(3, np.float32)).replace(b"(3,)", b"(9,)"),
        array_bytes(np.zeros(30, np.float32)).replace(b"(30,)", b"(-3,)"),
    ],
)
def test_arrays_that_are_none(tmp_path, context, content):
    path = plan(tmp_path / "f.optdb", members={**MEMBERS, "arrays/0.npy": content})
    with pytest.raises(FileError, match=r"(array in|member) arrays/0.npy"):
        load(path, context)


def test_programs_that_do_not_build(tmp_path, context):
    there = load(plan(tmp_path / "f.optdb", source=SOURCE.replace("2 * x", "nothing * x")), context)
    with pytest.raises(FileError, match="program 0 of"):
        there(X)


def launch(**changes):
    """Return the commands of the trace; `changes` replace fields of the launch."""
    return [TRACE["commands"][0], {**LAUNCH, **changes}]


def launch_with(position, arg):
    """Return the commands of the trace; `arg` replaces one argument of the launch."""
    args = list(LAUNCH["args"])
    args[position] = arg
    return launch(args=args)


def without(record, name):
    """Return a copy of a record without one of its fields."""
    return {key: value for key, value in record.items() if key != name}


LENGTH, BYTES = TRACE["entries"]
INVALID = {
    "states__0__name": [None, 3],
    "states__0__broadcastable": [[1], "no", [False, False]],
    "states__0__value": ["arrays/1.npy", 3, None],
    "states__0": [{"name": "total", "value": "arrays/0.npy", "broadcastable": [False], "more": 1}, {"name": "total"}],
    "programs": [
        [{"source": "programs/1.cl", "kernels": planned.KERNELS}],
        [{"source": "programs/0.cl", "kernels": planned.KERNELS}] * 2,
        [{"source": "programs/0.cl"}],
        ["programs/0.cl"],
        None,
    ],
    "methods": [[], {}, None, [3]],
    "methods__0__name": ["a b", "", 3, "ü"],
    "methods__0__signature": [None, []],
    "methods__0__signature__returns": ["all", None],
    "methods__0__signature__keys": [["a", "b"], 3],
    "methods__0__signature__arguments__0__dtype": ["object", "S4", None, 3],
    "methods__0__signature__arguments__0__default": ["arrays/7.npy", 3],
    "methods__0__signature__arguments__0__broadcastable": [[True, True], None],
    "methods__0__traces__0__device_kind": ["tpu", None],
    "methods__0__traces__0__compute_units": [0, -1, True, None, 1 << 30],
    "methods__0__traces__0__dtypes": [["what"], None],
    "methods__0__traces__0__entries": [
        [axis(0, 1), BYTES],
        [axis(1, 0), BYTES],
        [LENGTH, arithmetic("*", "$1", 4)],
        [LENGTH, arithmetic("*", "$2", 4)],
        [LENGTH, arithmetic("**", "$0", 4)],
        [LENGTH, scalar("__import__", "int64", "$0")],
        [LENGTH, scalar("cast", "object", "$0")],
        [LENGTH, scalar("add", "int64", "$0", 1, 2)],
        [LENGTH, scalar("add", "int64")],
        [LENGTH, arithmetic("*", "$0", 1e3)],
        [{"kind": "argument", "argument": 0}, BYTES],
        [LENGTH],
        [axis(True, 0), BYTES],
        [axis(0, True), BYTES],
        [axis(0, None), BYTES],
        [without(LENGTH, "axis"), BYTES],
        [{**LENGTH, "more": 1}, BYTES],
        [{**LENGTH, "kind": []}, BYTES],
        [LENGTH, {**BYTES, "op": ["*"]}],
        [[]],
        [{}],
        None,
    ],
    "methods__0__traces__0__guards": [
        [guard("is", "$0", 3)],
        [without(guard("==", "$0", 3), "right")],
        [guard("==", "$5", 3)],
        [guard("==", "$0", "infinite")],
        [3],
    ],
    "methods__0__traces__0__arguments": [[["$0", "$0"]], [], [["$9"]], [[None]]],
    "methods__0__traces__0__memories": [
        [workspace("$9")] * 3,
        [workspace(4.5)] * 3,
        [workspace(4, own_buffer=1)] * 3,
        [{"kind": "shared", "state": 1}] * 3,
        [{"kind": "shared", "state": -1}] * 3,
        [{"kind": "constant", "array": "arrays/1.npy"}] * 3,
        [{"kind": "constant", "array": "programs/0.cl"}] * 3,
        [{}] * 3,
        [],
    ],
    "methods__0__traces__0__commands": [
        [{"kind": "run", "target": "rm"}],
        [upload(5, 0, of_argument(0))],
        [upload(True, 0, of_argument(0))],
        [upload(None, 0, of_argument(0))],
        [upload(0, 0, of_argument(1))],
        [upload(0, 0, of_argument(-1))],
        [upload(0, 0, table("system", of_argument(0)))],
        [upload(0, 0, of_numbers("object", 1))],
        [upload(0, 0, None)],
        [without(upload(0, 0, of_argument(0)), "value")],
        [without(copy_of(0, 0, 1, 0, 0), "nbytes")],
        [copy_of(0, 0, 1, 0, "$9")],
        [fill(0, 0, 4, "zz")],
        [fill(0, 0, 4, "000000")],
        [{**TRACE["commands"][0], "queue": None}],
        launch(kernel={"program": 1, "function_name": "twice"}),
        launch(kernel={"program": -1, "function_name": "twice"}),
        launch(kernel={"program": 0, "function_name": "a b"}),
        launch(kernel={"program": 0, "function_name": "thrice"}),
        launch(kernel={"program": 0, "function_name": ["twice"]}),
        launch(kernel=[0, "twice"]),
        launch(global_size=[]),
        launch(global_size=[1, 1, 1, 1]),
        launch(local_size=[1, 1]),
        launch_with(0, number(3, dtype="object")),
        launch_with(0, number(3, 4)),
        launch_with(0, number()),
        launch_with(0, {"kind": "pointer", "memory": 0}),
        launch_with(1, 3),
        launch_with(0, 0),
        launch_with(0, None),
        launch_with(0, {"kind": "local", "nbytes": 64}),
        launch_with(0, number(3, dtype="uint8")),
        launch_with(0, number(*[3] * 16, dtype="long16")),
        launch_with(5, number(0)),
        launch_with(5, {"kind": "local", "nbytes": 64}),
        launch(args=LAUNCH["args"][:-1]),
        launch(array_slots=[0]),
        launch(array_slots=[5]),
        launch(array_slots=[99]),
        launch(array_slots=[1, 1]),
        [3],
        None,
    ],
    "methods__0__traces__0__results": [
        [array_result(7, [3], [4])],
        [array_result(1, [3], [4], "object")],
        [array_result(1, [3], [4, 4])],
        [array_result(1, [1] * 33, [4] * 33)],
        [{"kind": "numbers", "dtype": "int64", "numbers": [1, 2], "ndim": 0}],
        [{"kind": "numbers", "dtype": "int64", "numbers": [1], "ndim": 33}],
        [{"kind": "array", "dtype": "float32"}],
        [3],
    ],
}


@pytest.mark.parametrize(("place", "value"), [(place, value) for place, values in INVALID.items() for value in values])
def test_a_field_that_is_not_valid(tmp_path, context, place, value):
    with pytest.raises(FileError, match=r"f\.optdb") as caught:
        load(plan(tmp_path / "f.optdb", **{place: value}), context)
    assert "The cure" in str(caught.value)


BEYOND = [
    [upload(0, 4, of_argument(0))],
    [upload(0, -4, of_argument(0))],
    [upload(2, 0, of_numbers("float64", 1, 2, 3))],
    [copy_of(0, 0, 1, 4, 12)],
    [copy_of(0, 8, 1, 0, 12)],
    [copy_of(0, 0, 1, 0, -4)],
    [copy_of(2, 0, 2, 4, 8)],
    [fill(0, 0, 16, "00000000")],
    [fill(0, 2, 4, "00000000")],
    [fill(2, -4, 4, "00000000")],
    launch(global_size=[3]),
    launch(global_size=[-4]),
    launch(global_size=[1 << 62]),
    launch(local_size=[0]),
    launch(local_size=[1 << 40]),
    launch_with(0, number(-1)),
    launch_with(0, number(1.5)),
    launch_with(2, number(13)),
]


@pytest.mark.parametrize("commands", BEYOND)
def test_a_command_beyond_its_memory(tmp_path, context, commands):
    there = load(plan(tmp_path / "f.optdb", **trace_with(commands=commands)), context)
    before = there.get("total")
    with pytest.raises(FileError, match=r"(?s)f of .*f.optdb"):
        there(X)
    np.testing.assert_array_equal(there.get("total"), before)


@pytest.mark.parametrize(
    "result",
    [
        array_result(1, ["$0"], [4], offset=4),
        array_result(1, ["$0"], [8]),
        array_result(1, ["$0"], [-4]),
        array_result(1, ["$0"], [4], offset=-4),
        array_result(1, [1 << 40, 1 << 40], [0, 4]),
        array_result(1, [-3], [4]),
        array_result(None, [3], [4]),
    ],
)
def test_a_result_beyond_its_memory(tmp_path, context, result):
    path = plan(tmp_path / "f.optdb", **trace_with(results=[result]))
    with pytest.raises(FileError, match="f of"):
        load(path, context)(X)


def test_a_call_with_an_empty_result_is_done_with_its_arguments(tmp_path, context, monkeypatch):
    """When a call returns, the device no longer reads the arguments, even if no copy of a result has waited for it."""
    there = load(plan(tmp_path / "f.optdb", **trace_with(results=[array_result(1, [0], [4])])), context)
    finished = []
    queue_class = type(context.queue)
    finish = queue_class.finish
    monkeypatch.setattr(queue_class, "finish", lambda queue: [finished.append(1), finish(queue)][1])
    for calls in range(1, 4):
        assert there(X).shape == (0,)
        assert len(finished) >= calls
        np.testing.assert_array_equal(there.get("total"), X * calls)


def test_sizes_that_cannot_be_worked_out(tmp_path, context):
    for entries, memory in (
        ([LENGTH, arithmetic("//", "$0", 0)], "$1"),
        ([LENGTH, arithmetic("*", "$0", 1 << 62), arithmetic("*", "$1", 1 << 62)], "$2"),
        ([LENGTH, scalar("true_div", "float32", "$0", 2)], "$1"),
        ([LENGTH, arithmetic("-", 0, "$0")], "$1"),
    ):
        changes = trace_with(entries=entries, memories=[workspace(memory)] * 2 + [STATE])
        with pytest.raises((FileError, ShapeError)):
            load(plan(tmp_path / "f.optdb", **changes), context)(X)


def test_more_memory_than_there_is(tmp_path, context):
    memories = [workspace(1 << 60)] * 2 + [STATE]
    path = plan(tmp_path / "f.optdb", **trace_with(memories=memories))
    there = load(path, context, max_device_bytes=1 << 62, max_work_items=1 << 62)
    with pytest.raises(MemoryError, match="bytes at once"):
        there(X)


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("content", [None, b"no archive"])
def test_the_collector_is_off_while_a_file_is_read_and_then_as_before(tmp_path, context, monkeypatch, enabled, content):
    path = plan(tmp_path / "f.optdb")
    if content is not None:
        path.write_bytes(content)
    seen = []
    monkeypatch.setattr(model, "Archive", lambda *args: seen.append(gc.isenabled()) or Archive(*args))
    monkeypatch.setattr(model, "read", lambda archive: seen.append(gc.isenabled()) or read(archive))
    try:
        (gc.enable if enabled else gc.disable)()
        with contextlib.nullcontext() if content is None else pytest.raises(FileError):
            load(path, context)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert seen == ([False, False] if content is None else [False])


def test_a_manifest_that_is_nested_too_deeply(tmp_path, context):
    path = tmp_path / "f.optdb"
    source = of_argument(0)
    for _ in range(400):
        source = table("mentions", source)
    with pytest.raises(FileError, match="nested too deeply"):
        load(plan(path, methods__0__traces__0__commands=[upload(0, 0, source)]), context)(X)
    deep = "[" * 100_000 + "]" * 100_000
    manifest = json.dumps({"kind": "optdb plan", "version": 1, "members": {}, "states": 0}).replace("0}", deep + "}")
    repacked(path, {})
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", manifest)
        file.writestr("manifest.sha256", hashlib.sha256(manifest.encode()).hexdigest())
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)  # as programs do that pickle large graphs
    try:
        with pytest.raises(FileError, match="nested too deeply"):
            load(path, context)
    finally:
        sys.setrecursionlimit(usual)


BARE = """
import sys

ALLOWED = set(sys.stdlib_module_names) | {"numpy", "pyopencl", "mako", "markupsafe", "platformdirs", "optdb", "pytools",
    "typing_extensions", "siphash24", "attrs", "attr", "_distutils_hack", "sitecustomize"}

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ALLOWED:
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Nothing())
import numpy as np
import optdb

f = optdb.load(sys.argv[1])
print(f(np.array([1, 2, 3], np.float32)).tolist(), f.get("total").tolist())
print(*sorted({name.split(".")[1] for name in sys.modules if name.startswith("optdb.")}))
print([name for name in ("theano", "scipy") if name in sys.modules])
"""


@pytest.mark.slow
def test_a_file_runs_without_theano(tmp_path):
    path = plan(tmp_path / "f.optdb")
    run = subprocess.run(
        [sys.executable, "-c", BARE, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "[2.0, 4.0, 6.0] [1.0, 2.0, 3.0]",
        "callers collector composition files html_tables json_text numpy_types refcounting runtime trace_log "
        "unknown_names user_cache",
        "[]",
    ]


def test_the_example_is_what_it_is(tmp_path):
    assert planned.plan(tmp_path / "a").read_bytes() == planned.plan(tmp_path / "b").read_bytes()


def test_writers_of_one_path_do_not_meet(tmp_path, context):
    """If many threads write to one path, there is always a whole file at the path, and no other file is left behind."""
    path = tmp_path / "f.optdb"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: plan(path, about=str(number)), range(64)))
    np.testing.assert_array_equal(load(path, context)(X), 2 * X)
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing" / "f.optdb", tmp_path / "file" / "f.optdb"):
        with pytest.raises(OSError, match=str(path)):
            plan(path)


IN_A_FORK = """
    import os, signal, sys
    import numpy as np
    from optdb.runtime.exported import load
    from optdb.runtime.errors import ForkedContext
    there = load(sys.argv[1])
    x = np.array([1, 2, 3], np.float32)
    there(x)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        refused = 0
        for use in (lambda: there(x), lambda: there.f(x), lambda: there.get("total"), lambda: there.set("total", x)):
            try:
                use()
            except ForkedContext:
                refused += 1
        os._exit(refused)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), there(x).tolist())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_loaded_file_is_refused_in_a_fork(tmp_path):
    done = python("-c", textwrap.dedent(IN_A_FORK), str(plan(tmp_path / "f.optdb")))
    assert done.stdout.strip() == "4 [2.0, 4.0, 6.0]", done.stderr


def test_what_is_prepared_is_not_computed(tmp_path, context):
    there = load(plan(tmp_path / "f.optdb"), context)
    assert there.f.prepare(X) is None
    assert there.nbytes["f"] >= 24
    np.testing.assert_array_equal(there.get("total"), [0, 0, 0])
    with pytest.raises(ShapeError, match="was not exported for"):
        there.f.prepare(np.ones(4, np.float32))
    np.testing.assert_array_equal(there(X), 2 * X)
