"""Files of plans with any manual changes are rejected with a message, or run within their limits.

Kernels could do anything with changed numbers, so these tests bind such kernels, but do not run them.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import struct
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optdb.runtime.exported import FileError, LimitError, ShapeError, load, programs
from optdb.runtime.exported.archive import pack
from optdb.runtime.exported.rules import Call
from optdb.runtime.library import cl
from tests.effort import examples
from tests.runtime.planned import (
    LARGER,
    LAUNCH,
    MANIFEST,
    MEMBERS,
    SOURCE,
    TRACE,
    arithmetic,
    array_result,
    guard,
    number,
    of_argument,
    of_numbers,
    plan,
    reshaped,
    scalar,
    table,
    trace_with,
    upload,
)

X = np.array([1, 2, 3], np.float32)
Y = np.array([2, 0, 1], np.int32)

#: The errors that may be raised for such a file.
REFUSED = (FileError, ShapeError, TypeError, MemoryError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("strangers")


def test_the_larger_example_runs(tmp_path, context):
    pack(tmp_path / "f.optdb", LARGER, MEMBERS)
    there = load(tmp_path / "f.optdb", context)
    first, turned, values, constant, mentions = there(X, Y)
    assert first.tolist() == [0, 0, 0]
    assert turned.tolist() == [[1, 1], [0, 0], [2, 2]]
    assert values.tolist() == [-(-3 // context.profile.compute_units), 3]
    assert constant.tolist() == [0, 0, 0]
    assert mentions.tolist() == [1, 2, 0]
    assert there.get("total").tolist() == [1, 1, 1]
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        there(X, Y + 1)


def leaves(value, path=()):
    """Return the paths of all numbers, texts and lists in a manifest."""
    found = [path] if path else []
    inner = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, part in inner:
        found += leaves(part, (*path, key))
    return found


PLACES = leaves(LARGER)

ODD = st.one_of(
    st.sampled_from([0, 1, -1, 2, 3, 5, 8, 12, 13, 31, 32, 2**31, 2**32]),
    st.sampled_from([2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30]),
    st.sampled_from(["$0", "$1", "$3", "$8", "$9", "$99999999", "$-1", "$", "inf", "nan", "", "float64", "complex64"]),
    st.sampled_from([None, True, False, [], {}, 0.5, -1.0, 1e300, [[]], ["$0"], "\ud800", "../../etc/passwd"]),
    st.sampled_from([of_argument(0), of_argument(1), table("classes", of_argument(1), 3), {"kind": "memory"}]),
    st.sampled_from([number("$3"), {"kind": "local", "nbytes": 64}, number(1, dtype="complex128")]),
    st.sampled_from(["array", "numbers", "constant", "host", "shared", "workspace", "upload", "copy", "local", "axis"]),
    st.integers(-(2**70), 2**70),
)


def changed(manifest, changes):
    """Return a copy of a manifest with new values at some paths; skip paths that do not exist."""
    manifest = copy.deepcopy(manifest)
    for path, value in changes:
        inner = manifest
        try:
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has removed the path
    return manifest


CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=3)
PATIENT = settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@PATIENT
@given(changes=CHANGES)
def test_a_changed_manifest_is_refused_or_bound(folder, context, changes):
    path = folder / "bound.optdb"
    try:
        pack(path, changed(LARGER, changes), MEMBERS)
    except (ValueError, TypeError, UnicodeEncodeError):
        return  # such a manifest cannot be written
    try:
        for method in load(path, context).methods.values():
            method._bind(Call(method.signature.bind((X, Y), {}), context.profile.compute_units))
    except REFUSED as error:
        assert str(error)


def _without_launches():
    manifest = copy.deepcopy(LARGER)
    for trace in manifest["methods"][0]["traces"]:
        trace["commands"] = [command for command in trace["commands"] if command["kind"] != "launch"]
    return manifest


STILL = _without_launches()


@pytest.mark.slow
@PATIENT
@given(changes=st.lists(st.tuples(st.sampled_from(leaves(STILL)), ODD), min_size=1, max_size=3))
def test_a_changed_manifest_is_refused_or_run(folder, context, changes):
    path = folder / "run.optdb"
    try:
        pack(path, changed(STILL, changes), MEMBERS)
    except (ValueError, TypeError, UnicodeEncodeError):
        return
    try:
        there = load(path, context)
        assert repr(there)
        for method in there.methods.values():
            method(X, Y)
            method(X, Y)
        assert all(there.get(name).nbytes == 12 for name in there.names)
    except (*REFUSED, IndexError) as error:
        assert str(error)


@pytest.mark.slow
@PATIENT
@given(place=st.integers(0, 10**9), bytes_=st.binary(min_size=1, max_size=12), cut=st.booleans(), insert=st.booleans())
def test_changed_bytes(folder, context, place, bytes_, cut, insert):
    path = folder / "bytes.optdb"
    whole = plan(path).read_bytes()
    place %= len(whole)
    behind = whole[place:] if insert else whole[place + len(bytes_) :]
    path.write_bytes(whole[:place] + bytes_ + (b"" if cut else behind))
    try:
        there = load(path, context)
    except FileError as error:
        assert "The cure" in str(error)
        return
    np.testing.assert_array_equal(there(X), 2 * X)


@pytest.mark.slow
@PATIENT
@given(st.integers(0, 200), st.binary(min_size=1, max_size=8))
def test_changed_headers_of_arrays(folder, context, place, bytes_):
    content = MEMBERS["arrays/0.npy"]
    place %= len(content)
    content = content[:place] + bytes_ + content[place + len(bytes_) :]
    path = folder / "arrays.optdb"
    pack(path, MANIFEST, {**MEMBERS, "arrays/0.npy": content})
    try:
        there = load(path, context)
        np.testing.assert_array_equal(there(X), 2 * X)
    except REFUSED as error:
        assert str(error)


def array_of(descr, shape, content=b""):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(502) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


@pytest.mark.parametrize(
    "content",
    [
        array_of("<f3", "(4,)", b"x" * 12),
        array_of("<f16", "(1,)", b"x" * 16),
        array_of("<b7", "(1,)", b"x" * 7),
        array_of("<c99", "(0,)"),
        array_of("<f4", f"({'1, ' * 40})", b"x" * 4),
        array_of("<f4", f"(0, {10**17}, {10**17})"),
        array_of("<f4", f"({10**17}, {10**17}, 0)"),
    ],
)
def test_headers_of_arrays(tmp_path, context, content):
    path = plan(tmp_path / "f.optdb", members={**MEMBERS, "arrays/0.npy": content})
    with pytest.raises(FileError, match=r"array in arrays/0.npy"):
        load(path, context)


def test_members_within_each_other(tmp_path, context):
    """A file of one megabyte lists this megabyte as the content of a thousand members."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as file:
        file.writestr("arrays/0.npy", b"x" * 2**20)
        file.infolist()[0].filename = "arrays/0.npy"
        first = file.infolist()[0]
        for number in range(1, 1000):
            again = copy.copy(first)
            again.filename = f"arrays/{number}.npy"
            file.filelist.append(again)
    path = tmp_path / "f.optdb"
    path.write_bytes(content.getvalue())
    with pytest.raises(FileError, match="exceed the file or overlap"):
        load(path, context)


def test_what_is_no_file_is_refused_at_once(tmp_path, context):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "zeros", "folder"):
        with pytest.raises(FileError, match=f"{name} is not a regular file"):
            load(tmp_path / name, context)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 << 30)
    with pytest.raises(LimitError, match="sparse would take 107,374,182,400 bytes of the host's memory"):
        load(tmp_path / "sparse", context)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16", "utf-32-be", "utf-8-sig"])
def test_a_manifest_in_another_encoding_is_refused(tmp_path, context, encoding):
    """With a raised recursion limit, Python's parser would crash the process."""
    deep = "[" * 300_000 + "]" * 300_000
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        for text in (f'{{"a": "\u0122", "b": {deep}, "c": "\u0122"}}', json.dumps({"kind": "optdb plan"})):
            with pytest.raises(FileError, match="has a manifest that cannot be read"):
                load(archive(tmp_path / "f.optdb", text.encode(encoding)), context)
    finally:
        sys.setrecursionlimit(usual)


def archive(path, manifest):
    """Write a file with a given manifest text."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", manifest)
        file.writestr("manifest.sha256", hashlib.sha256(manifest).hexdigest())
    return path


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ('"kind": "optdb plan"', "two values for 'kind'"),
        ('"x": NaN', "NaN is not a number"),
        ('"x": -1e999', "-1e999 is too large"),
        ('"x": ' + "1" * 50, "a number that is too long"),
        ('"x": "\\ud800"', "unpaired surrogate"),
        ('"x": "\0"', "control character"),
    ],
)
def test_what_json_leaves_open_is_refused(tmp_path, context, part, words):
    text = f'{{"kind": "optdb plan", {part}}}'.encode()
    with pytest.raises(FileError, match=words):
        load(archive(tmp_path / "f.optdb", text), context)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda info: setattr(info, "flag_bits", info.flag_bits | 0x1), "encrypted"),
        (lambda info: setattr(info, "flag_bits", info.flag_bits | 0x40), "encrypted"),
        (lambda info: setattr(info, "compress_type", zipfile.ZIP_LZMA), "compressed"),
        (lambda info: setattr(info, "compress_type", 97), "compressed"),
        (lambda info: setattr(info, "header_offset", info.header_offset + 1), "not a complete exported file"),
        (lambda info: setattr(info, "header_offset", 2**40), "not a complete exported file"),
        (lambda info: setattr(info, "file_size", info.file_size + 2**40), "compressed"),
        (lambda info: setattr(info, "CRC", info.CRC ^ 1), "the checksum of .* does not match"),
        (lambda info: setattr(info, "filename", "arrays/7.npy"), "different names"),
        (lambda info: setattr(info, "filename", "programs/0.cl"), "different names"),
    ],
)
def test_a_list_of_members_that_is_not_true(tmp_path, context, change, words):
    path = tmp_path / "f.optdb"
    pack(path, LARGER, MEMBERS)
    with zipfile.ZipFile(path, "a") as file:
        file._didModify = True  # write the list of members again
        change(file.getinfo("arrays/0.npy"))
    with pytest.raises(FileError, match=words):
        load(path, context)


def test_sizes_beyond_the_file(tmp_path, context):
    path = tmp_path / "f.optdb"
    pack(path, LARGER, MEMBERS)
    with zipfile.ZipFile(path, "a") as file:
        file._didModify = True
        last = file.infolist()[-1]
        last.file_size = last.compress_size = 2**40
    with pytest.raises(LimitError, match="max_host_bytes"):
        load(path, context)
    with pytest.raises(FileError, match="exceed the file"):
        load(path, context, max_host_bytes=2**50)


def test_what_surrounds_the_members_is_left_alone(tmp_path, context):
    """Comments, bytes before the archive, and attributes of symbolic links are ignored, because nothing is unpacked."""
    path = tmp_path / "f.optdb"
    pack(path, LARGER, MEMBERS)
    with zipfile.ZipFile(path, "a") as file:
        file.comment = b"PK\x05\x06" + b"x" * 65_000
        file.getinfo("arrays/0.npy").external_attr = 0o120777 << 16
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())
    try:
        there = load(path, context)
    except FileError:
        return
    assert there(X, Y)[0].tolist() == [0, 0, 0]


def test_a_program_in_another_form_is_refused_when_it_is_loaded(tmp_path, context):
    taken = "#define P(a, b) a##b\n" + SOURCE.replace("ulong n", "P(sam, pler_t) n").replace("i < n", "i < 3")
    with pytest.raises(FileError, match=r"has a program, programs/0.cl, that has a directive in line 1"):
        load(plan(tmp_path / "f.optdb", source=taken), context)


@pytest.mark.parametrize(
    "kernels",
    [
        {},
        {"twice": ["uint64", "global", "uint64", "global", "uint64"]},
        {"twice": ["int64", "global", "uint64", "global", "uint64", "global"]},
        {"twice": ["uint64", "global", "uint64", "global", "uint64", "global"], "thrice": []},
        {"twice": None},
        None,
        [],
    ],
)
def test_a_table_that_is_not_what_the_kernels_take(tmp_path, context, kernels):
    with pytest.raises(FileError, match="is not valid"):
        load(plan(tmp_path / "f.optdb", programs__0__kernels=kernels), context)


@pytest.mark.parametrize("kind", ["uint", "sampler_t"])
def test_a_driver_that_tells_otherwise_is_believed(tmp_path, context, monkeypatch, kind):
    """A kernel is not launched if the driver reports other parameters than the kernel's declaration has."""

    class Told:
        """A fake kernel for which the driver reports other parameters."""

        num_args = 6

        def __init__(self, kernel):
            self._kernel = kernel

        def __getattr__(self, name):
            return getattr(self._kernel, name)

        def get_arg_info(self, place, what):
            if what == cl.kernel_arg_info.TYPE_NAME and not place:
                return kind
            return self._kernel.get_arg_info(place, what)

    monkeypatch.setattr(programs.cl, "Kernel", lambda program, name, real=cl.Kernel: Told(real(program, name)))
    there = load(plan(tmp_path / "f.optdb"), context)
    with pytest.raises(FileError, match="does not accept the kernel twice with its declared parameters"):
        there(X)


LOCAL = {"kind": "local", "nbytes": (1 << 64) - 1}


@pytest.mark.parametrize(
    "changes",
    [
        # Numbers whose product exceeds the elements of any array.
        trace_with(results=[array_result(1, [1 << 40, 1 << 40], [0, 0])]),
        trace_with(results=[array_result(1, [1 << 62], [0])]),
        trace_with(results=[array_result(None, [0, 1 << 62, 1 << 62], [0, 0, 0])]),
        trace_with(results=[array_result(1, [3], [(1 << 63) - 1])]),
        trace_with(results=[array_result(1, [3], [4], offset=(1 << 63) - 1)]),
        trace_with(results=[array_result(1, [3], [-(1 << 62)], offset=1 << 63)]),
        # Tables whose inputs have an unsuitable kind, dtype or shape.
        trace_with(results=[{"kind": "host", "value": table("mentions", of_argument(0))}]),
        trace_with(results=[{"kind": "host", "value": table("distinct", of_numbers("int64", 1.5))}]),
        trace_with(
            results=[{"kind": "host", "value": table("begins", reshaped(of_numbers("int64", 1, 2, 3, 4), 2, 2))}]
        ),
        # Numbers that cannot be computed, for example because of a division by zero.
        trace_with(
            entries=[*TRACE["entries"], arithmetic("//", "$0", 0)],
            results=[{"kind": "numbers", "dtype": "float32", "numbers": ["$2"], "ndim": 0}],
        ),
        # Arguments that, alone or together, need more local memory than any device has.
        {
            "source": f"__kernel void twice({', '.join(f'__local float *x{i}' for i in range(6))}) {{}}\n",
            **trace_with(commands=[{**LAUNCH, "args": [LOCAL] * 6, "array_slots": []}]),
        },
    ],
)
def test_what_is_valid_by_itself_and_not_in_its_place(tmp_path, context, changes):
    path = plan(tmp_path / "f.optdb", **changes)
    with pytest.raises(REFUSED, match=r"f of .*f\.optdb"):
        load(path, context)(X)


def test_infinity_is_written_as_a_text(tmp_path, context):
    entries = [*TRACE["entries"], scalar("minimum", "float32", "$0", "inf")]
    guards = [guard("==", "$2", 3), guard("<", "$0", "inf"), guard("<", "-inf", "$0")]
    path = plan(tmp_path / "f.optdb", **trace_with(entries=entries, guards=guards))
    np.testing.assert_array_equal(load(path, context)(X), 2 * X)
    with pytest.raises(ShapeError, match=r"x of shape \(2,\).*\n    minimum\(x.shape\[0\], inf\) == 3"):
        load(path, context)(X[:2])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (table("indexes", of_argument(0)), "value.numbers must be a list of 2 numbers"),
        (table("classes", 3, 4), "value.array must be an object of one of the kinds argument"),
        (table("mentions", []), "value.array must be an object of one of the kinds argument"),
        (table("mentions", of_argument(0), 3), "value.numbers must be a list of 0 numbers"),
    ],
)
def test_tables_with_other_arguments(tmp_path, context, value, words):
    with pytest.raises(FileError, match=rf"manifest.methods\[0\].traces\[\d\].commands\[0\].{words}"):
        load(plan(tmp_path / "f.optdb", **trace_with(commands=[upload(0, 0, value)])), context)


def test_an_array_that_is_named_twice(tmp_path, context):
    commands = [TRACE["commands"][0], {**LAUNCH, "array_slots": [1, 1]}]
    with pytest.raises(FileError, match=r"commands\[1\].array_slots must be a list of different numbers"):
        load(plan(tmp_path / "f.optdb", **trace_with(commands=commands)), context)


def test_what_the_driver_refuses_is_said_with_words(tmp_path, context):
    source = SOURCE.replace("__kernel", "__kernel __attribute__((reqd_work_group_size(4, 1, 1)))")
    there = load(plan(tmp_path / "f.optdb", source=source), context)
    with pytest.raises(FileError, match=r"f of .*f\.optdb: the device rejected it"):
        there(X)
