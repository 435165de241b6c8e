"""Creates mutants (altered copies) of valid files; each mutant is determined by a seed and a number.

Most mutants have changed values in the manifest, and digests that match the changed content. In other mutants, the
change is in the manifest's encoding or JSON syntax, in a program, in an array, in the members of the archive, in the
archive's list of members, or in any bytes of the file. A few mutants are not regular files.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuzzing.files.corpus import Original
from optdb.runtime.exported.archive import DIGEST, KIND, MANIFEST, VERSION

__all__ = ["Mutant", "mutant", "packed"]

#: Small numbers like those of a valid file, and numbers at the limits of dtypes and of the loader's checks.
_NUMBERS = (
    *(0, 1, -1, 2, 3, 4, 5, 8, 12, 13, 16, 31, 32, 64, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1, 2**31, 2**32),
    *(2**40, 2**48, 2**53, 2**58, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**31), -(2**63), 10**30),
)
_OTHERS: tuple[Any, ...] = (
    *(None, True, False, [], {}, 0.5, -1.0, 1e300),
    *("", "inf", "-inf", "nan", "float64", "complex64", "object", "\ud800"),
    *("$0", "$1", "$2", "$9", "$99999999", "$-1", "$", "$01", "../../etc/passwd", "arrays/0.npy", "programs/0.cl"),
    *([[]], ["$0"], {"kind": "argument", "argument": 0}, {"kind": "argument", "argument": 1}, {"kind": "shared"}),
    *({"kind": "local", "nbytes": 2**40}, {"kind": "local", "nbytes": 64}, {"kind": "shared", "state": 0}),
    *({"kind": "number", "dtype": name, "values": [value]} for name, value in (("uint64", "$0"), ("complex128", 1))),
    *({"kind": "array", "array": "arrays/0.npy"}, {"kind": "constant", "array": "arrays/0.npy"}),
    *({"kind": "compute_units"}, {"kind": "axis", "argument": 0, "axis": 0}),
    *(
        {"kind": "arithmetic", "op": op, "left": left, "right": right}
        for op, left, right in (("*", "$0", 2**62), ("//", 1, 0), ("**", "$0", "$0"))
    ),
    {"kind": "numbers", "dtype": "float64", "numbers": [1, 2.5, "inf"]},
    {"kind": "numbers", "dtype": "int64", "numbers": [1, 2], "ndim": 1},
    {"kind": "table", "table": "classes", "array": {"kind": "argument", "argument": 1}, "numbers": [3]},
    {"kind": "table", "table": "mentions", "array": {"kind": "argument", "argument": 0}, "numbers": []},
    {"kind": "reshaped", "array": {"kind": "argument", "argument": 0}, "shape": [3, 1]},
    {"kind": "workspace", "nbytes": 2**62, "own_buffer": True},
    {"kind": "host", "value": {"kind": "argument", "argument": 0}},
    *("argument", "array", "numbers", "reshaped", "table"),
    *("shared", "constant", "workspace", "host", "local", "number"),
    *("launch", "copy", "fill", "upload", "axis", "arithmetic", "scalar", "compute_units", "kind"),
)
#: Texts to insert into a program; programs must not contain many of them.
_PIECES = (
    *('#include "/etc/passwd"\n', "#include </etc/passwd>\n", "#inc\\\nlude <x>\n"),
    *("__has_include(<x>)", "??=include <x>\n", "#pragma clang __debug crash\n", "\n#pragma unroll 9999\n"),
    *("#define A A A\n", '_Pragma("x")', "asm(x)", "__asm__"),
    *("sampler_t", "image2d_t", "samp##ler_t", "typedef struct { long a[99]; } ulong;", "typedef", "struct S", "union"),
    *("__attribute__((constructor))", "__attribute__((aligned(8)))", "__builtin_trap()", "__kernel void g(ulong n) {}"),
    *("__kernel", "__global", "__local", "*", "(", ")", "{", "}"),
    *("[", "]", ";", ",", "0", "1", "float4", "long16", "\0"),
    *("while (1);", "for (;;) ;", "extern int system();", "return;", "/*", "*/", "//", "\\", '"', "'", "\t", "\r", "é"),
)
_TOKEN = re.compile(r"\s+|\w+|.", re.DOTALL)

#: The parts of a manifest that determine which memory kernels read and write.
_OF_KERNELS = ("entries", "commands", "programs", "memories", "arguments", "states", "guards")


@dataclass(frozen=True)
class Mutant:
    """An altered file, or another kind of file system entry (see `FORMS`).

    A sparse file begins with `content`, and has the size `nbytes`. `new_kernels` says whether kernels may use other
    memory than the kernels of the valid file, and `new_programs` whether programs are changed.
    """

    original: Original
    kind: str
    content: bytes
    new_kernels: bool
    new_programs: bool
    form: str = "file"
    nbytes: int = 0


def mutant(originals: Sequence[Original], seed: int, number: int) -> Mutant:
    """Return a mutant."""
    rng = random.Random(f"{seed} {number}")
    # The first original has all features of the format; the other originals have kernels and sizes of real functions.
    original = originals[0] if rng.random() < 0.5 else rng.choice(originals)
    kind = rng.choices(list(_KINDS), [share for share, _ in _KINDS.values()])[0]
    return _KINDS[kind][1](kind, original, rng)


def packed(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a plan file with digests that match its content."""
    return _archive(_text(manifest, members).encode(), members)


def _text(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> str:
    """Return a manifest as JSON, including the list of the members."""
    listed = {
        name: {"nbytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }
    return json.dumps({"kind": KIND, "version": VERSION, "members": listed, **manifest})


def _archive(text: bytes, members: Mapping[str, bytes]) -> bytes:
    """Return an archive of a manifest, its digest, and the members."""
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
    """Change a value at a random position; return the names of the fields that contain it."""
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
    """Return a value that differs slightly from a given value."""
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
        position, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        how = rng.randrange(5)
        if how == 0:
            tokens.insert(position, rng.choice(_PIECES))
        elif how == 1:
            tokens[position] = rng.choice(_PIECES)
        elif how == 2:
            tokens[position], tokens[other] = tokens[other], tokens[position]
        elif how == 3:
            tokens.insert(position, tokens[other])
        else:
            tokens[position] = ""
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
        # Headers describe an array.
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
        # Half of the changes are near the end of the file, because it contains the archive's list of members.
        start = 0 if rng.random() < 0.5 else max(len(content) - 800, 0)
        position = rng.randrange(start, len(content)) if len(content) > start else 0
        how = rng.randrange(4)
        if how == 0:
            content[position : position + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(9))
        elif how == 1:
            content[position : position + 4] = rng.choice(_NUMBERS).to_bytes(16, "little", signed=True)[:4]
        elif how == 2:
            del content[position:]
        else:
            content[position:position] = content[start : start + rng.randrange(1, 300)]
        if not content:
            break
    return Mutant(original, kind, bytes(content), True, False)


def _of_text(kind: str, original: Original, rng: random.Random) -> Mutant:
    """Alter the manifest's text: change its encoding, or insert syntax that JSON parsers treat differently."""
    text = _text(original.manifest, original.members)
    for _ in range(rng.choice((0, 1, 1, 2))):
        position = rng.choice([match.end() for match in re.finditer(r"[\[{,:]", text)])
        text = text[:position] + rng.choice(_TEXTS)(rng) + text[position:]
    encoding = rng.choice(_ENCODINGS) if rng.random() < 0.5 else "utf-8"
    content = rng.choice(_MARKS) + text.encode(encoding, "surrogatepass")
    if rng.random() < 0.2:
        position = rng.randrange(len(content))
        content = content[:position] + rng.choice((b"\0", b"\xff", b"\xc0\xa2", b"\xed\xa0\x80")) + content[position:]
    return Mutant(original, kind, _archive(content, original.members), True, False)


_ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig", "utf-7")
_MARKS = (*[b""] * 12, b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\0")
#: Texts that are inserted into a manifest.
_TEXTS: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: rng.choice(("NaN,", "Infinity,", "-Infinity,", "1e400,", "-0,", "-0.0,", "01,", "0x1,", "1_0,", "+1,")),
    lambda rng: f"{rng.choice(('1', '-1', '0.', '1e', '1e-'))}{'7' * rng.choice((30, 39, 40, 41, 5000, 200_000))},",
    lambda rng: f"{rng.choice(_NUMBERS)},",
    lambda rng: '"kind": "optdb plan", "kind": ' + rng.choice(('"optdb plan",', "1,")),
    lambda rng: rng.choice(
        ('"version": 3,', '"members": {},', '"methods": [],', '"": 1, "": 2,', '"a": 1, "\\u0061": 2,')
    ),
    lambda rng: rng.choice(
        ('"\\ud800",', '"\\udc00\\ud800",', '"\ud800",', '"\\ud834\\udd1e",', '"\\u0000",', '"\0",')
    ),
    lambda rng: rng.choice(("\u0122", '"\u0122",', "\ufeff", "\u2028", "\u00a0", "/**/", "//", "'", "`", "\\", '"')),
    lambda rng: (
        f'"{rng.choice(("x", chr(0x1D11E), chr(92) * 2, chr(92) + "u0041")) * rng.choice((10, 5000, 100_000))}",'
    ),
    lambda rng: _nested(rng.choice((10, 60, 64, 65, 100, 1000, 100_000)), *rng.choice((("[", "]"), ('{"a":', "}")))),
    lambda rng: rng.choice(("[" * 100_000, "]" * 1000, "{" * 1000, "}" * 1000, " " * 100_000, "\n" * 1000)),
)


def _nested(depth: int, begin: str, end: str) -> str:
    return f"{begin * depth}0{end * depth},"


def _of_list(kind: str, original: Original, rng: random.Random) -> Mutant:
    """Alter the list of members at the end of the archive, or insert bytes before the archive."""
    content = io.BytesIO(packed(original.manifest, original.members))
    with zipfile.ZipFile(content, "a") as file:
        # This makes zipfile write the list again.
        file._didModify = True  # type: ignore[attr-defined]  # private: its hints leave it out
        for _ in range(rng.choice((1, 1, 2, 4))):
            _change_list(file, rng)
    return Mutant(original, kind, rng.choice(_PREFIXES) + content.getvalue(), True, False)


_PREFIXES = (*[b""] * 6, b"#!/bin/sh\n", b"PK\x01\x02" * 100, b"PK\x05\x06" + bytes(18), b"\0" * 4096)
#: Maps each attribute of an archive's member to wrong values.
_ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "flag_bits": (0x1, 0x8, 0x20, 0x40, 0x800, 0x2000, 0xFFFF),
    "compress_type": (8, 12, 14, 93, 97, 0xFFFF),
    "CRC": (0, 2**32 - 1),
    "header_offset": (0, 1, 30, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1),
    "file_size": (0, 1, 2**16, 2**26, 2**32 - 1, 2**32, 2**40, 2**63 - 1),
    "compress_size": (0, 1, 2**32 - 1, 2**40),
    "filename": ("arrays/0.npy", "programs/0.cl", MANIFEST, DIGEST, "../evil", "", "arrays/0.npy\0", "é", "x" * 60000),
    "extra": (
        b"\x01\0",
        b"\x01\0\x10\0" + b"\xff" * 16,
        struct.pack("<HHQQQ", 1, 24, 2**63, 2**63, 2**63),
        b"\xff" * 60000,
    ),
    "comment": (b"PK\x05\x06", b"x" * 60000),
    "external_attr": (0o120777 << 16, 0o010666 << 16, 0x10),
    "create_version": (0, 255),
    "extract_version": (0, 46, 63, 255),
}


def _change_list(file: zipfile.ZipFile, rng: random.Random) -> None:
    infos = file.filelist
    if not infos:
        return
    info, how = rng.choice(infos), rng.random()
    if how < 0.7:
        name = rng.choice(list(_ATTRIBUTES))
        value = rng.choice(_ATTRIBUTES[name])
        setattr(info, name, value)
        if name == "file_size":
            info.compress_size = rng.choice((value, value, info.compress_size))
    elif how < 0.8:
        infos.remove(info)
    elif how < 0.9:
        again = copy.copy(info)
        again.filename = rng.choice((info.filename, "arrays/99.npy"))
        infos.extend([again] * rng.choice((1, 3, 2000)))
    elif how < 0.95:
        rng.shuffle(infos)
    else:
        file.comment = rng.choice((b"PK\x05\x06" + bytes(18), b"x" * 65535, b"PK\x01\x02" * 5000))


#: The kinds of file system entries that a mutant can be.
FORMS = ("file", "link", "fifo", "zeros", "null", "terminal", "folder", "socket", "loop", "missing", "sparse", "memory")
#: The kinds of file system entries that the operating system refuses to open.
REFUSED_FORMS = ("terminal", "socket", "loop", "missing")
_SPARSE_BYTES = (1 << 10, 1 << 20, 1 << 24, 1 << 27, 1 << 32, 1 << 37, 1 << 42)


def _of_form(kind: str, original: Original, rng: random.Random) -> Mutant:
    """Replace the file by another kind of file system entry."""
    form = rng.choice(FORMS[1:])
    content = packed(original.manifest, original.members) if form in ("link", "sparse") else b""
    return Mutant(original, kind, content, True, False, form, rng.choice(_SPARSE_BYTES) if form == "sparse" else 0)


_Maker = Callable[[str, Original, random.Random], Mutant]
#: Maps a kind of change to its share (a weight) and the function that makes it.
_KINDS: dict[str, tuple[int, _Maker]] = {
    "manifest": (64, _of_manifest),
    "program": (14, _of_program),
    "array": (6, _of_array),
    "archive": (6, _of_archive),
    "bytes": (10, _of_bytes),
    "text": (8, _of_text),
    "list": (8, _of_list),
    "form": (2, _of_form),
}
