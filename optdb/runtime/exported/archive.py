"""The file format: an uncompressed zip archive that contains a list of its members.

`pack` writes an archive, and `Archive` reads an archive in memory. ``manifest.json`` contains the size and SHA-256 of
each other member, and ``manifest.sha256`` the SHA-256 of the manifest. The hashes detect damage; they do not
authenticate the author.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import re
import struct
import uuid
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optdb.files import ChangedFileError, FileTooLargeError, NotAFileError, read_file
from optdb.json_text import parse_json
from optdb.numpy_types import HostArray
from optdb.runtime.errors import FileError, LimitError
from optdb.runtime.records import DTYPES

KIND = "optdb plan"
#: The version of the format; files of other versions are rejected.
VERSION = 3

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"

#: Matches the names that members may have.
_NAME = re.compile(r"(arrays/\d{1,6}\.npy|programs/\d{1,6}\.cl)\Z", re.ASCII)
#: The signature of an entry in the central directory, used to count the entries before they are read.
_LISTED = b"PK\x01\x02"
#: The signature at the start of a member's header.
_MEMBER = b"PK\x03\x04"
#: The size of a member's header without the name and the extra field.
_MEMBER_HEADER_BYTES = 30
#: Reads the lengths of the name and of the extra field from the header.
_MEMBER_LENGTHS = struct.Struct("<26xHH")
#: The flags of members whose bytes are not plain content, such as encrypted members.
_ENCODED = 0x1 | 0x20 | 0x40 | 0x2000
#: Maps the kind and item size in an array's header to the dtype.
_DESCRIBED = {f"{np.dtype(name).kind}{np.dtype(name).itemsize}": np.dtype(name) for name in DTYPES}
#: The maximum number of axes, and the maximum number of elements, that all versions of NumPy support in an array. An
#: axis of length 0 counts as length 1 in the number of elements.
MAX_DIMENSIONS, MAX_ELEMENTS = 32, 1 << 58

#: The header of a C-contiguous, little-endian array in NumPy's format.
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '[<|](?P<dtype>[biufc]\d{1,2})', 'fortran_order': False, "
    rb"'shape': \((?P<shape>(\d{1,18}(, ?|(?=\))))*)\), \} *\n\Z"
)

#: Errors besides BadZipFile that zipfile raises for some invalid archives.
_OTHERS = (IndexError, KeyError, OverflowError, AttributeError)

_CURE = "The cure: export it again, and copy it as a binary file"


GIBIBYTE = 1 << 30

#: Upper bound on the bytes of Python objects for each byte of the manifest.
MANIFEST_BYTES_PER_BYTE = 128
#: Upper bound on the bytes of Python objects for each byte of a program while the program is checked.
PROGRAM_BYTES_PER_BYTE = 64
#: Upper bound on the bytes of Python objects for each member of the archive.
MEMBER_BYTES = 2048


@dataclass(frozen=True)
class Limits:
    """The limits for a loaded file."""

    #: Host memory, in bytes, for the file and for a call's results and uploads, but not for a call's arguments.
    max_host_bytes: int = 4 * GIBIBYTE
    #: Device memory, in bytes, for shared values, constants and values computed in calls.
    max_device_bytes: int = 4 * GIBIBYTE
    #: Number of work items in all launches of one call; 64 bytes copied, filled or uploaded count as one item.
    max_work_items: int = 1 << 38

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be an integer of 0 or more, not {value!r}")

    def check(self, name: str, wanted: int, what: str) -> None:
        """Raise LimitError if `wanted` exceeds the named limit; the message begins with `what`."""
        limit = getattr(self, name)
        if wanted <= limit:
            return
        unit = {"max_host_bytes": "bytes of the host's memory", "max_device_bytes": "bytes of the device's memory"}
        raise LimitError(
            f"{what} would take {wanted:,} {unit.get(name, 'work items')}, but the limit is {limit:,}.\n"
            f"The cure: if you trust the file, optdb.load(..., {name}={wanted})"
        )


def pack(path: Path, manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> None:
    """Write a file atomically, and add the list of members to the manifest; OSErrors name the path."""
    listed = {
        name: {"nbytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }
    content = {"kind": KIND, "version": VERSION, **manifest, "members": listed}
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    # Use a unique name, since other processes may be writing to the same path.
    unfinished = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with zipfile.ZipFile(unfinished, "x", zipfile.ZIP_STORED) as file:
            for name, member in {MANIFEST: text, DIGEST: _digest(text), **members}.items():
                # ZipInfo's fixed date makes files reproducible.
                file.writestr(zipfile.ZipInfo(name), member)
        unfinished.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


class Archive:
    """A file that has been checked for integrity and against the limits.

    The constructor raises OSError if the file cannot be read, and FileError if it is not a valid file of this version.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self._limits = limits
        self._arrays: dict[str, HostArray] = {}
        # Read the file once, so that later writes to it have no effect.
        content = self._content()
        #: An upper bound on the host memory, in bytes, that the file takes after it is read; initially, the bound
        #: includes only the list of the file's members.
        self.host_bytes = content.count(_LISTED) * MEMBER_BYTES
        self._limits.check("max_host_bytes", self.host_bytes, f"the list of the members of {path}")
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as file:
                infos = file.infolist()
        except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, OSError, struct.error, *_OTHERS) as error:
            raise self._not_whole(error) from None
        self._members = self._read(infos, content)
        #: The manifest without the fields that `pack` adds and that this class checks.
        self.manifest = self._manifest()
        self._check_members(self.manifest.pop("members", None))

    def wrong(self, what: str, cure: str = _CURE) -> FileError:
        """Return an error that says what is wrong with the file and how to fix it."""
        return FileError(f"{self.path} {what}.\n{cure}")

    def _not_whole(self, reason: object) -> FileError:
        return self.wrong(f"is not a complete exported file ({reason})")

    def _content(self) -> bytes:
        try:
            return read_file(self.path, self._limits.max_host_bytes)
        except NotAFileError:
            raise self.wrong("is not a regular file") from None
        except ChangedFileError:
            raise self.wrong("was changed while it was read", "The cure: load it again") from None
        except FileTooLargeError as error:
            self._limits.check("max_host_bytes", error.nbytes, f"{self.path}")
            raise

    def _read(self, infos: Sequence[zipfile.ZipInfo], content: bytes) -> dict[str, memoryview]:
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise self.wrong(f"has a compressed member, {info.filename!r}, which exported files never have")
            if info.flag_bits & _ENCODED:
                raise self.wrong(f"has an encrypted member, {info.filename!r}, which exported files never have")
        self.host_bytes += len(content) + sum(info.file_size * _bytes_per_byte(info.filename) for info in infos)
        self._limits.check("max_host_bytes", self.host_bytes, f"{self.path}")
        members: dict[str, memoryview] = {}
        last_end = 0
        for info in sorted(infos, key=lambda info: info.header_offset):
            if info.header_offset < last_end:
                raise self.wrong("has members that exceed the file or overlap")
            if info.filename in members:
                raise self.wrong(f"has two members named {info.filename!r}")
            begin, last_end = self._bounds(info, content)
            members[info.filename] = memoryview(content)[begin:last_end]
            if zlib.crc32(members[info.filename]) != info.CRC:
                raise self._not_whole(f"the checksum of {info.filename!r} does not match its content")
        return members

    def _bounds(self, info: zipfile.ZipInfo, content: bytes) -> tuple[int, int]:
        name_begin = info.header_offset + _MEMBER_HEADER_BYTES
        header = content[info.header_offset : name_begin]
        if len(header) < _MEMBER_HEADER_BYTES or not header.startswith(_MEMBER):
            raise self._not_whole(f"{info.filename!r} does not begin where the archive's directory says")
        name_nbytes, extra_nbytes = _MEMBER_LENGTHS.unpack(header)
        if content[name_begin : name_begin + name_nbytes] != info.orig_filename.encode(errors="surrogateescape"):
            raise self._not_whole(f"{info.filename!r} has different names in the archive's directory and in its header")
        begin = name_begin + name_nbytes + extra_nbytes
        if begin + info.file_size > len(content):
            raise self.wrong("has members that exceed the file or overlap")
        return begin, begin + info.file_size

    def _manifest(self) -> dict[str, Any]:
        text, digest = self._members.pop(MANIFEST, None), self._members.pop(DIGEST, None)
        if text is None or digest is None:
            raise self.wrong("is an archive without a manifest, so not an exported file")
        if digest != _digest(text):
            raise self.wrong("was altered: its manifest differs from the one that was written")
        #: The SHA-256 of the manifest, which contains the SHA-256 of each other member.
        self.digest = str(digest, "ascii")
        try:
            manifest = parse_json(bytes(text))
        except ValueError as error:
            raise self.wrong(f"has a manifest that cannot be read ({error})") from None
        if not isinstance(manifest, dict) or manifest.pop("kind", None) != KIND:
            raise self.wrong("is not an exported file")
        version = manifest.pop("version", None)
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise self.wrong("does not name its version")
        if version != VERSION:
            older, newer = "export it again with this optdb", "install a newer optdb, or export it with this one"
            raise self.wrong(
                f"has version {version}, but this optdb reads version {VERSION}",
                f"The cure: {older if version < VERSION else newer}",
            )
        return manifest

    def _check_members(self, listed: Any) -> None:
        if not isinstance(listed, dict) or set(listed) != set(self._members):
            raise self.wrong("has different members than its manifest lists")
        for name, content in self._members.items():
            entry = listed[name]
            if not _NAME.match(name) or not isinstance(entry, dict):
                raise self.wrong(f"has a member {name!r} that no exported file has")
            if entry.get("nbytes") != len(content) or entry.get("sha256") != hashlib.sha256(content).hexdigest():
                raise self.wrong(f"is damaged: {name} differs from what was written")

    def text(self, name: Any) -> str:
        """Return the text in a member."""
        try:
            return str(self._member(name), "utf-8")
        except UnicodeDecodeError:
            raise self.wrong(f"has a member {name} that is not UTF-8 text") from None

    def array(self, name: Any) -> HostArray:
        """Return the array in a member; it must not be modified."""
        if not isinstance(name, str) or name not in self._arrays:
            self._arrays[name] = self._array(name)
        return self._arrays[name]

    def _array(self, name: Any) -> HostArray:
        content = self._member(name)
        begin = len(_MAGIC) + 2
        end = begin + int.from_bytes(content[len(_MAGIC) : begin], "little")
        header = _HEADER.match(content[begin:end])
        if content[: len(_MAGIC)] != _MAGIC or header is None:
            raise self.wrong(f"has a member {name} that is not an array of a supported kind")
        dtype = _DESCRIBED.get(header["dtype"].decode())
        shape = tuple(int(length) for length in header["shape"].split(b",") if length.strip())
        if dtype is None or math.prod(shape) * dtype.itemsize != len(content) - end:
            raise self.wrong(f"has an array in {name} whose size differs from the one it declares")
        if len(shape) > MAX_DIMENSIONS or math.prod(length or 1 for length in shape) > MAX_ELEMENTS:
            raise self.wrong(f"has an array in {name} of an unsupported shape, {shape}")
        return np.frombuffer(content[end:], dtype).reshape(shape)

    def _member(self, name: Any) -> memoryview:
        if not isinstance(name, str) or name not in self._members:
            raise self.wrong(f"references a missing member, {name!r}")
        return self._members[name]


def _digest(text: bytes | memoryview) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _bytes_per_byte(name: str) -> int:
    """For each byte of a member, return an upper bound on the additional host bytes that using the member takes."""
    if name == MANIFEST:
        return MANIFEST_BYTES_PER_BYTE
    return PROGRAM_BYTES_PER_BYTE if name.endswith(".cl") else 0
