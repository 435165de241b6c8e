"""Objects pickled with one Python and NumPy can be read with another, and give the same results."""

from __future__ import annotations

import io
import pickletools
import sys

import numpy as np
import pytest
from theano.misc import pkl_utils

from tests.host.theano.importing.compat import pickled

FILES = sorted(pickled.FOLDER.glob("*.xz"))
NUMPY = tuple(map(int, np.__version__.split(".")[:2]))


def unreadable_reason(written_by: str, case: str) -> str | None:
    """Return why NumPy itself cannot read the pickles of a later NumPy; None if it can."""
    if "-numpy2." not in written_by or NUMPY >= (2, 0):
        return None
    if NUMPY < (1, 26):
        return "NumPy before 1.26 has no numpy._core, which arrays pickled by NumPy 2 name"
    if "random" in case and not case.startswith("mrg"):
        return "NumPy 1 does not read random states of NumPy 2"
    return None


def assert_same(value, expected):
    """Compare results; numbers may differ by as much as versions of special functions do."""
    assert type(value) is type(expected)
    if isinstance(value, list):
        assert len(value) == len(expected)
        for part, expected_part in zip(value, expected, strict=True):
            assert_same(part, expected_part)
    else:
        assert value == (pytest.approx(expected, rel=1e-6) if isinstance(value, float) else expected)


@pytest.mark.slow_cases("python3.10-numpy1.23-expressions")
@pytest.mark.parametrize("case", sorted(pickled.CASES))
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_another_version_pickled_computes_the_same(path, case):
    reason = unreadable_reason(path.stem, case)
    if reason:
        pytest.skip(reason)
    content, expected = pickled.read(path)[case]
    assert_same(pickled.compute(case, content), expected)


@pytest.mark.slow_cases("function_with_scan")
@pytest.mark.parametrize("case", sorted(pickled.CASES))
def test_this_version_computes_what_the_oldest_does(case):
    _, expected = pickled.read(FILES[0])[case]
    assert_same(pickled.compute(case, pickled.make_bytes(case)), expected)


@pytest.mark.slow_cases("function_with_scan")
@pytest.mark.parametrize("case", sorted(pickled.CASES))
def test_pickles_name_no_module_of_optdb(case):
    texts = {argument for _, argument, _ in pickletools.genops(pickled.make_bytes(case)) if isinstance(argument, str)}
    assert not [text for text in texts if text == "optdb" or text.startswith("optdb.")]


@pytest.mark.slow_cases("expressions", "function_with_scan", "function_with_updates")
@pytest.mark.parametrize("case", sorted(pickled.CASES))
def test_theano_s_zip_files_are_written_and_read(monkeypatch, case):
    # For each object, Theano tries to import pygpu, which takes most of the time if sys.path has many folders.
    monkeypatch.setitem(sys.modules, "pygpu", None)
    make, use = pickled.CASES[case]
    made = make()
    file = io.BytesIO()
    pkl_utils.dump(made, file)
    assert pickled.plain(use(pkl_utils.load(file))) == pickled.plain(use(made))
