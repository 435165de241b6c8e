"""Parses JSON text from untrusted files.

Python's parser recurses, takes quadratic time for long numbers, guesses the encoding, and keeps only the last of
several values for one key. `parse_json` therefore checks the text first. This module imports nothing from optdb.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

import numpy as np

__all__ = ["parse_json"]

#: The maximum nesting of lists and objects; no file of optdb needs more than a dozen levels.
_MAX_DEPTH = 64
#: The maximum length of a number, in characters, because conversion takes quadratic time.
_MAX_NUMBER_LENGTH = 40
#: An escape sequence for a character. Half of a surrogate pair is not a character, and cannot be encoded in UTF-8.
_ESCAPE = re.compile(
    rb"\\(?:u(?![dD][89a-fA-F])|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[^u])", re.DOTALL
)


def parse_json(content: bytes) -> Any:
    """Return the value of a JSON text in UTF-8, without a byte order mark.

    Time and memory are linear in the length of the text.

    Raises
    ------
    ValueError
        If the text is not UTF-8 or not JSON, is nested too deeply, or contains one of the following: a number that is
        too long, not finite, or too large for float64; a repeated key in one object; or half of a surrogate pair.
    """
    try:
        # In valid UTF-8, each byte below 128 is an ASCII character, so the checks of bytes see what the parser sees.
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error}") from None
    reason = _unsafe_reason(content)
    if reason is not None:
        raise ValueError(reason)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_distinct)
    except RecursionError:
        # The caller is close to the recursion limit.
        raise ValueError("it is nested too deeply") from None


def _unsafe_reason(text: bytes) -> str | None:
    """Return why a text must not be parsed; None if it may be parsed."""
    text = _ESCAPE.sub(b"", text)
    if b"\\" in text:
        return "it has an unpaired surrogate or an invalid escape sequence"
    letters = np.frombuffer(text, np.uint8)
    outside = letters[(np.cumsum(letters == ord('"'), dtype=np.int32) & 1) == 0]
    begins, ends = (np.isin(outside, np.frombuffer(marks, np.uint8)) for marks in (b"[{", b"]}"))
    depth = np.cumsum(begins.astype(np.int32) - ends.astype(np.int32), dtype=np.int32)
    if depth.max(initial=0) > _MAX_DEPTH:
        return "it is nested too deeply"
    separators = np.flatnonzero(np.isin(outside, np.frombuffer(b'[]{},:" \t\r\n', np.uint8)))
    lengths = np.diff(separators, prepend=-1, append=len(outside)) - 1
    if lengths.max(initial=0) > _MAX_NUMBER_LENGTH:
        return "it has a number that is too long"
    return None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large for a 64-bit number")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"an object has two values for {key[:40]!r}")
    return members
