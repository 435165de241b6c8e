"""Mutants of sound files: the same one each time for the same seed and number.

Most change what the manifest says, where it says it, and have digests that fit. Others change texts of programs token
by token, bytes of arrays, members of the archive, or bytes of the finished file.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuzzing.files.corpus import Original
from optdb.runtime.exported.archive import DIGEST, KIND, MANIFEST, VERSION

__all__ = ["Mutant", "mutant", "packed"]

#: Numbers at the ends of what dtypes hold and of what is checked, and others near those of a file.
_NUMBERS = (
    *(0, 1, -1, 2, 3, 4, 5, 8, 12, 13, 16, 31, 32, 64, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1, 2**31, 2**32),
    *(2**40, 2**48, 2**53, 2**58, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**31), -(2**63), 10**30),
)
_OTHERS = (
    *(
        None,
        True,
        False,
        [],
        {},
        0.5,
        -1.0,
        1e300,
        "",
        "inf",
        "-inf",
        "nan",
        "float64",
        "complex64",
        "object",
        "\ud800",
    ),
    *("$0", "$1", "$2", "$9", "$99999999", "$-1", "$", "$01", "../../etc/passwd", "arrays/0.npy", "programs/0.cl"),
    *([[]], ["$0"], ["argument", 0], ["argument", 1], ["memory", 0], ["memory", 3], ["local", 2**40], ["local", 64]),
    *(
        ["number", "uint64", ["$0"]],
        ["number", "complex128", [1]],
        ["array", "arrays/0.npy"],
        ["units"],
        ["axis", 0, 0],
    ),
    *(["value", "float64", [1, 2.5, "inf"]], ["table", "classes", [["argument", 1], 3]], ["*", "$0", 2**62]),
    *(["table", "mentions", [["argument", 0]]], ["shaped", ["argument", 0], [3, 1]], ["//", 1, 0], ["**", "$0", "$0"]),
)
#: What a program of a file must not have.
_PIECES = (
    *(
        '#include "/etc/passwd"\n',
        "#include </etc/passwd>\n",
        "#inc\\\nlude <x>\n",
        "__has_include(<x>)",
        "??=include <x>\n",
    ),
    *(
        "#pragma clang __debug crash\n",
        "\n#pragma unroll 9999\n",
        "#define A A A\n",
        '_Pragma("x")',
        "asm(x)",
        "__asm__",
    ),
    *("sampler_t", "image2d_t", "samp##ler_t", "typedef struct { long a[99]; } ulong;", "typedef", "struct S", "union"),
    *("__attribute__((constructor))", "__attribute__((aligned(8)))", "__builtin_trap()", "__kernel void g(ulong n) {}"),
    *(
        "__kernel",
        "__global",
        "__local",
        "*",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ";",
        ",",
        "0",
        "1",
        "float4",
        "long16",
        "\0",
    ),
    *("while (1);", "for (;;) ;", "extern int system();", "return;", "/*", "*/", "//", "\\", '"', "'", "\t", "\r", "é"),
)
_TOKEN = re.compile(r"\s+|\w+|.", re.DOTALL)

#: Parts of a manifest that decide over what kernels read and write; a change of others leaves that to the file.
_OF_KERNELS = ("entries", "commands", "programs", "memories", "arguments", "states", "guards")


@dataclass(frozen=True)
class Mutant:
    """An altered file.

    Parameters
    ----------
    original : Original
        What was altered.
    kind : str
        In what way.
    content : bytes
        Of the file.
    new_kernels : bool
        Whether its kernels are others, or may read and write elsewhere.
    new_programs : bool
        Whether its programs are others.
    """

    original: Original
    kind: str
    content: bytes
    new_kernels: bool
    new_programs: bool


def mutant(originals: Sequence[Original], seed: int, number: int) -> Mutant:
    """Return a mutant."""
    rng = random.Random(f"{seed} {number}")
    # The first has all that there can be; of the others, kernels and sizes are those of real functions.
    original = originals[0] if rng.random() < 0.5 else rng.choice(originals)
    kind = rng.choices(list(_KINDS), [share for share, _ in _KINDS.values()])[0]
    return _KINDS[kind][1](kind, original, rng)


def packed(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Return a file whose digests fit, whatever it says."""
    listed = {
        name: {"nbytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }
    text = json.dumps({"kind": KIND, "version": VERSION, "members": listed, **manifest}).encode()
    digest = hashlib.sha256(text).hexdigest().encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as file:
        for name, value in {MANIFEST: text, DIGEST: digest, **members}.items():
            file.writestr(zipfile.ZipInfo(name), value)
    return content.getvalue()


def _of_manifest(kind: str, original: Original, rng: random.Random) -> Mutant:
    manifest = copy.deepcopy(original.manifest)
    touched = set()
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        touched |= _change(manifest, rng)
    new_programs = "programs" in touched
    return Mutant(original, kind, packed(manifest, original.members), not touched.isdisjoint(_OF_KERNELS), new_programs)


def _change(manifest: dict[str, Any], rng: random.Random) -> set[Any]:
    """Change something somewhere; return the names of the fields around it."""
    inner: Any = manifest
    path: list[Any] = []
    while True:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        if not keys:
            break
        key = rng.choice(keys)
        path.append(key)
        if not isinstance(inner[key], dict | list) or not inner[key] or rng.random() < 0.08:
            break
        inner = inner[key]
    if not path or not len(inner):
        return set()
    key = path[-1]
    how = rng.random()
    if how < 0.35:
        inner[key] = _near(inner[key], rng)
    elif how < 0.7:
        inner[key] = rng.choice(_NUMBERS) if rng.random() < 0.5 else copy.deepcopy(rng.choice(_OTHERS))
    elif how < 0.8:
        del inner[key]
    elif isinstance(inner, list) and how < 0.95:
        inner.insert(rng.randrange(len(inner) + 1), copy.deepcopy(rng.choice(inner)))
    elif isinstance(inner, list) and len(inner) < 100:
        inner += copy.deepcopy(inner) * rng.choice((1, 10, 200))
    elif isinstance(inner, dict):
        inner[str(key) + "_"] = inner.pop(key)
    return set(filter(lambda part: isinstance(part, str), path))


def _near(value: Any, rng: random.Random) -> Any:
    """Return something like a value."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-8, -4, -1, 1, 4, 8)) if rng.random() < 0.7 else value * rng.choice((-1, 2, 1 << 20))
    if isinstance(value, str) and value[:1] == "$":
        return f"${rng.randrange(12)}"
    if isinstance(value, str):
        return rng.choice((value[:-1], value + value, value.upper(), value[:100] * 1000))
    if isinstance(value, list):
        return rng.sample(value, len(value))
    return copy.deepcopy(rng.choice(_OTHERS))


def _of_program(kind: str, original: Original, rng: random.Random) -> Mutant:
    members = dict(original.members)
    name = rng.choice([name for name in members if name.endswith(".cl")])
    tokens = _TOKEN.findall(members[name].decode())
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        how = rng.randrange(5)
        if how == 0:
            tokens.insert(place, rng.choice(_PIECES))
        elif how == 1:
            tokens[place] = rng.choice(_PIECES)
        elif how == 2:
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif how == 3:
            tokens.insert(place, tokens[other])
        else:
            tokens[place] = ""
    members[name] = "".join(tokens).encode()
    return Mutant(original, kind, packed(original.manifest, members), True, True)


def _of_array(kind: str, original: Original, rng: random.Random) -> Mutant:
    members = dict(original.members)
    arrays = [name for name in members if name.endswith(".npy")]
    if not arrays:
        return _of_manifest(kind, original, rng)
    name = rng.choice(arrays)
    content = bytearray(members[name])
    for _ in range(rng.choice((1, 2, 8))):
        # Headers are where an array says what it is.
        content[rng.randrange(min(len(content), 128))] = rng.choice(b"0123456789()', <|ifcbOVTrueFalse\x00\xff\n")
    members[name] = bytes(content)
    return Mutant(original, kind, packed(original.manifest, members), True, False)


def _of_archive(kind: str, original: Original, rng: random.Random) -> Mutant:
    members = dict(original.members)
    how = rng.randrange(4)
    name = rng.choice(list(members))
    if how == 0:
        members[
            rng.choice(("../evil", "/etc/passwd", "arrays/1e9.npy", "arrays/77.npy", "manifest.json ", "x" * 60000))
        ] = b"x"
    elif how == 1:
        del members[name]
    elif how == 2:
        members[name] = members[rng.choice(list(members))]
    else:
        members[name] = members[name] * rng.choice((0, 2, 50))
    manifest = {**original.manifest, **rng.choice(({}, {}, {"version": rng.choice(_NUMBERS)}, {"members": {}}))}
    return Mutant(original, kind, packed(manifest, members), True, how == 2)


def _of_bytes(kind: str, original: Original, rng: random.Random) -> Mutant:
    content = bytearray(packed(original.manifest, original.members))
    for _ in range(rng.choice((1, 1, 3, 20))):
        # Half of them where the archive lists its members.
        start = 0 if rng.random() < 0.5 else max(len(content) - 800, 0)
        place = rng.randrange(start, len(content)) if len(content) > start else 0
        how = rng.randrange(4)
        if how == 0:
            content[place : place + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(9))
        elif how == 1:
            content[place : place + 4] = rng.choice(_NUMBERS).to_bytes(16, "little", signed=True)[:4]
        elif how == 2:
            del content[place:]
        else:
            content[place:place] = content[start : start + rng.randrange(1, 300)]
        if not content:
            break
    return Mutant(original, kind, bytes(content), True, False)


_Maker = Callable[[str, Original, random.Random], Mutant]
#: For each kind, its share.
_KINDS: dict[str, tuple[int, _Maker]] = {
    "manifest": (64, _of_manifest),
    "program": (14, _of_program),
    "array": (6, _of_array),
    "archive": (6, _of_archive),
    "bytes": (10, _of_bytes),
}
