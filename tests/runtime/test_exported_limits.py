"""Whatever in a file exceeds a limit is rejected before it is allocated, unless the caller raises the limit."""

from __future__ import annotations

import copy
import gc
import hashlib
import io
import json
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from optdb.runtime.exported import FileError, LimitError, load
from optdb.runtime.exported.archive import MANIFEST_BYTES_PER_BYTE, Archive, Limits, pack
from optdb.runtime.exported.binding import MAX_BOUND_PER_METHOD
from optdb.runtime.records import array_bytes
from tests.runtime.planned import (
    LAUNCH,
    MANIFEST,
    MEMBERS,
    STATE,
    TRACE,
    array_result,
    copy_of,
    plan,
    scalar,
    table,
    trace_with,
    upload,
    workspace,
)

X = np.array([1, 2, 3], np.float32)


def launched_on(*items):
    launch = {**LAUNCH, "global_size": list(items), "local_size": None}
    return trace_with(commands=[TRACE["commands"][0], launch])


def result_of(*shape):
    return trace_with(results=[array_result(1, shape, [0] * len(shape))])


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        (result_of(1 << 31), "max_host_bytes"),
        (result_of(1 << 20, 1 << 20), "max_host_bytes"),
        (trace_with(memories=[workspace(1 << 33)] * 2 + [STATE]), "max_device_bytes"),
        (trace_with(memories=[workspace(1 << 33, own_buffer=True)] * 2 + [STATE]), "max_device_bytes"),
        (launched_on(1 << 47), "max_work_items"),
        (launched_on(1 << 20, 1 << 20, 1 << 20), "max_work_items"),
    ],
)
def test_a_call_that_asks_for_too_much(tmp_path, context, changes, limit):
    there = load(plan(tmp_path / "f.optdb", **changes), context)
    before = there.get("total")
    words = rf"f of .*f\.optdb: .* would take [\d,]+ .*, but the limit is [\d,]+\.\nThe cure: .*{limit}=\d+\)"
    with pytest.raises(LimitError, match=words):
        there(X)
    np.testing.assert_array_equal(there.get("total"), before)


MEGABYTE = 1 << 20
LARGE = {**MEMBERS, "arrays/1.npy": array_bytes(np.zeros(MEGABYTE, np.uint8))}
ARRAY = {"kind": "array", "array": "arrays/1.npy"}
CONSTANT = {"kind": "constant", "array": "arrays/1.npy"}
TABLE = {"kind": "host", "value": table("mentions", ARRAY)}


@pytest.mark.parametrize(
    "changes",
    [
        result_of(5 * MEGABYTE),
        trace_with(results=[CONSTANT] * 20),
        trace_with(results=[TABLE] * 2),
        trace_with(commands=[*TRACE["commands"], upload(3, 0, TABLE["value"])])
        | trace_with(memories=[*TRACE["memories"], workspace(8 * MEGABYTE)]),
    ],
)
def test_memory_of_the_host_for_a_call(tmp_path, context, changes):
    changes |= {"methods__0__signature__returns": "list"}
    path = plan(tmp_path / "f.optdb", members=LARGE, **changes)
    needed = Archive(path, Limits()).host_bytes
    with pytest.raises(LimitError, match="max_host_bytes"):
        load(path, context, max_host_bytes=needed + 10 * MEGABYTE)(X)
    there = load(path, context, max_host_bytes=needed + 200 * MEGABYTE)
    assert len(there(X)) == len(changes.get("methods__0__traces__0__results", [0]))


def test_memory_of_the_device_for_what_stays(tmp_path, context):
    states = [{"name": f"s{i}", "broadcastable": [False], "value": "arrays/1.npy"} for i in range(20)]
    path = plan(tmp_path / "f.optdb", members=LARGE, states=states)
    with pytest.raises(LimitError, match=r"(?s)with its shared values would take 10,485,760 .*max_device_bytes"):
        load(path, context, max_device_bytes=10 * MEGABYTE - 1)
    assert len(load(path, context, max_device_bytes=20 * MEGABYTE).names) == 20
    commands = [copy_of(0, 0, 3, 0, 12)]
    memories = [*TRACE["memories"], {"kind": "constant", "array": "arrays/1.npy"}]
    path = plan(tmp_path / "f.optdb", members=LARGE, **trace_with(commands=commands, memories=memories))
    with pytest.raises(LimitError, match=r"constants of 1,048,576 bytes would take"):
        load(path, context, max_device_bytes=MEGABYTE)(X)
    load(path, context, max_device_bytes=2 * MEGABYTE)(X)


def test_a_limit_that_is_none(tmp_path, context):
    for value in (-1, 1.5, "4 GB", None, True):
        with pytest.raises(ValueError, match="max_host_bytes must be an integer"):
            load(plan(tmp_path / "f.optdb"), context, max_host_bytes=value)


def any_shape(path):
    """Write a plan for vectors of any length; its workspace takes twice the memory of a vector."""
    memories = [workspace("$1"), workspace("$1"), workspace("$1", own_buffer=True)]
    return plan(path, **trace_with(guards=[], memories=memories))


def test_what_is_ready_makes_room(tmp_path, context):
    there = load(any_shape(tmp_path / "f.optdb"), context, max_device_bytes=4 * MEGABYTE)
    for _ in range(3):
        for length in (1000, MEGABYTE // 4, MEGABYTE // 4 + 100, 5):
            x = np.arange(length, dtype=np.float32)
            np.testing.assert_array_equal(there(x), 2 * x)
            assert there.nbytes["f"] <= 4 * MEGABYTE
    with pytest.raises(LimitError, match="max_device_bytes"):
        there(np.ones(MEGABYTE // 2, np.float32))
    for length in range(1, 30):
        there(np.ones(length, np.float32))
    assert len(there._resources.budget.of_method("f")) == MAX_BOUND_PER_METHOD


def seconds_and_bytes(do):
    """Try to load a file; return how much time and Python memory this takes."""
    gc.collect()
    tracemalloc.start()
    start = time.process_time()
    try:
        do()
    except (FileError, MemoryError) as error:
        assert str(error)
    seconds = time.process_time() - start
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return seconds, most


def with_text(path, text):
    """Write a file with a given manifest text."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", text)
        file.writestr("manifest.sha256", hashlib.sha256(text).hexdigest())
    return path


def chained(count):
    """Return a manifest with `count` arguments, and with entries that each depend on all earlier arguments."""
    manifest = copy.deepcopy(MANIFEST)
    (method,) = manifest["methods"]
    argument = {**method["signature"]["arguments"][0], "broadcastable": []}
    method["signature"]["arguments"] = [{**argument, "name": f"x{i}"} for i in range(count)]
    for trace in method["traces"]:
        entries = [{"kind": "argument", "argument": 0}]
        for number in range(1, count):
            addition = scalar("add", "float64", f"${len(entries) - 1}", f"${len(entries)}")
            entries += [{"kind": "argument", "argument": number}, addition]
        trace.update(entries=entries, guards=[], arguments=[[]] * count, commands=[], memories=[])
        trace["results"] = [{"kind": "numbers", "dtype": "float64", "numbers": [f"${len(entries) - 1}"], "ndim": 0}]
    return json.dumps({"kind": "optdb plan", **manifest}).encode()


TEXTS = {
    "quotes": lambda n: b'"' * n,
    "escaped quotes": lambda n: b'"' + b'\\"' * n,
    "texts": lambda n: b'{"a":[' + b'"",' * n + b'""]}',
    "open lists": lambda n: b"[" * n,
    "lists": lambda n: b"[" + b"[]," * n + b"[]]",
    "digits": lambda n: b'{"kind":' + b"7" * n + b"}",
    "fractions": lambda n: b'{"kind":0.' + b"7" * n + b"}",
    "exponents": lambda n: b'{"kind":1e' + b"7" * n + b"}",
    "spaces": lambda n: b'{"kind":' + b" " * n + b"}",
}


@pytest.mark.thorough_cases("escaped quotes", "texts", "lists", "fractions", "exponents", "spaces")
@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_manifests_are_read_in_linear_time(tmp_path, context, name):
    def load_one(count):
        path = with_text(tmp_path / "f.optdb", TEXTS[name](count))
        return seconds_and_bytes(lambda: load(path, context))

    load_one(100)
    # If the time were quadratic, a file of eight times the size would take 64 times as long.
    assert load_one(160_000)[0] < 24 * load_one(20_000)[0] + 0.2


@pytest.mark.slow
def test_chained_entries_take_linear_time_and_memory(tmp_path, context):
    def load_one(count):
        manifest = json.loads(chained(count))
        pack(tmp_path / "f.optdb", {key: manifest[key] for key in ("about", "states", "programs", "methods")}, MEMBERS)
        there = []
        found = seconds_and_bytes(lambda: there.append(load(tmp_path / "f.optdb", context)))
        return *found, there[0]

    load_one(10)
    small_s, small_bytes, _ = load_one(500)
    large_s, large_bytes, there = load_one(4000)
    assert large_s < 24 * small_s + 0.2
    assert large_bytes < 24 * small_bytes
    assert there(*range(4000)) == sum(range(4000))


@pytest.mark.thorough
@pytest.mark.slow
def test_as_much_as_is_estimated_is_enough(tmp_path, context):
    """The objects of a loaded manifest take no more memory than the limits count for it."""
    for name, text in TEXTS.items():
        path = with_text(tmp_path / "f.optdb", text(100_000))
        _, most = seconds_and_bytes(lambda path=path: load(path, context))
        assert most < MANIFEST_BYTES_PER_BYTE * path.stat().st_size, name


@pytest.mark.slow
def test_a_list_of_very_many_members(tmp_path, context):
    """A list of empty members with short names takes more memory than the file has bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("a", b"")
        file.filelist *= 20_000
    (tmp_path / "f.optdb").write_bytes(content.getvalue())
    with pytest.raises(LimitError, match=r"the list of the members of .* would take 40,960,000 bytes"):
        load(tmp_path / "f.optdb", context, max_host_bytes=40_000_000)
    _, most = seconds_and_bytes(lambda: load(tmp_path / "f.optdb", context))
    assert most < 40_960_000


@pytest.mark.slow
def test_a_file_that_is_larger_than_it_may_be(tmp_path, context):
    path = plan(tmp_path / "f.optdb", members={**MEMBERS, "arrays/1.npy": array_bytes(np.zeros(1 << 24, np.uint8))})
    with pytest.raises(LimitError, match="max_host_bytes"):
        load(path, context, max_host_bytes=1 << 24)
    _, most = seconds_and_bytes(lambda: load(path, context, max_host_bytes=1 << 24))
    assert most < 1 << 23


def test_limits_are_told_with_numbers_that_can_be_pasted():
    with pytest.raises(
        LimitError, match=r"a call would take 5,000 work items, but the limit is 4,000\.\nThe cure: .*=5000\)"
    ):
        Limits(max_work_items=4000).check("max_work_items", 5000, "a call")
    Limits(max_work_items=4000).check("max_work_items", 4000, "a call")
