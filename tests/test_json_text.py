"""Untrusted JSON that Python wrote in UTF-8 is read; other bytes are parsed as by Python, or rejected."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.json_text import parse_json
from tests.effort import examples

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Category Cs: halves of surrogate pairs
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(['"', "\\", '\\"', "\\u1", "𝄞"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('ab"\\', max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_python_writes_is_read(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parse_json(text.encode()) == value


@settings(max_examples=examples(300))
@given(st.binary(max_size=12) | st.text('[]{}",:\\u0dD89aebf-+.EINty \n', max_size=24).map(str.encode))
def test_any_bytes_are_parsed_as_python_does_or_refused(content):
    try:
        value = parse_json(content)
    except ValueError as error:
        assert str(error)
        return
    assert value == json.loads(content.decode())


ONE = '{"a": "b"}'


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"])
def test_another_encoding_is_refused(encoding):
    assert json.loads(ONE.encode(encoding)) == {"a": "b"}
    with pytest.raises(ValueError, match=r"UTF-8|Expecting|BOM|too long"):
        parse_json(ONE.encode(encoding))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'"\xff"', "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\xc0\xa2"', "not UTF-8"),
        (b'"\\ud800"', "unpaired surrogate"),
        (b'"\\udc00\\ud800"', "unpaired surrogate"),
        (b'"\\ud800\\\\udc00"', "unpaired surrogate"),
        (b'{"\\uDFFF": 1}', "unpaired surrogate"),
        (b"{}\x00", "Extra data"),
        (b'"\x00"', "control character"),
        (b"NaN", "NaN is not a number"),
        (b"[Infinity]", "Infinity is not a number"),
        (b"-Infinity", "-Infinity is not a number"),
        (b"1e400", "1e400 is too large"),
        (b"[-1e400]", "-1e400 is too large"),
        (b"7" * 41, "a number that is too long"),
        (b"7" * 5000, "a number that is too long"),
        (b"[" * 65 + b"]" * 65, "nested too deeply"),
        (b'{"a": 1, "b": 2, "a": 1}', "two values for 'a'"),
        (b'[{"": 1, "\\u0000": {"x": 1, "\\u0078": 2}}]', "two values for 'x'"),
        (b"", "Expecting value"),
    ],
)
def test_what_is_refused(content, words):
    with pytest.raises(ValueError, match=words):
        parse_json(content)


def test_what_looks_like_it_and_is_not():
    assert parse_json(b'["\\\\ud800", "\\ud834\\udd1e", "[[["]') == ["\\ud800", "\U0001d11e", "[[["]
    assert parse_json(b"-0") == 0 and math.copysign(1, parse_json(b"-0.0")) == -1
    assert parse_json(b"[" * 64 + b"]" * 64)
    assert parse_json(b"7" * 40) == int("7" * 40)
    assert parse_json(b'"\\u0000"') == "\0"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-32-be"])
def test_a_raised_recursion_limit_does_not_let_the_process_crash(encoding):
    """In UTF-16, one of the bytes of '\u0122' is that of a quote."""
    deep = "[" * 300_000 + "]" * 300_000
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        with pytest.raises(ValueError, match=r"nested too deeply|backslash|control character|Expecting"):
            parse_json(f'{{"a": "\u0122", "b": {deep}, "c": "\u0122"}}'.encode(encoding))
    finally:
        sys.setrecursionlimit(usual)


@pytest.mark.parametrize("part", [b'"', b"\\", b"\\u", b"\\ud800", b"[", b"7", b",", b'"a":1,', b'"a",'])
def test_it_takes_linear_time(part):
    def seconds(count):
        start = time.process_time()
        for content in (b'["' + part * count + b'"]', b"{" + part * count + b"0}"):
            with contextlib.suppress(ValueError):
                parse_json(content)
        return time.process_time() - start

    # If the time were quadratic, it would be 64 times as long, about ten seconds.
    assert seconds(80_000) < 24 * seconds(10_000) + 2
