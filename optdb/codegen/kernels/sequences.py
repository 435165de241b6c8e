"""One kernel for many small launches.

A launch has overhead, on a processor ten times the time that a small kernel computes. :func:`sequence_program` writes a
kernel that executes a *list* of launches, one after the other in a single work item. It calls the functions that
``outlining`` makes of the bodies of outlined kernels, with the ids that these would query, so it computes the same
numbers.

A list is a buffer of words of 64 bits. An entry is the number of a case in that kernel, the length of the entry in
words, and the case's operands: for a launch the number of items in each of three dimensions, and the arguments, where
the address of a buffer stands for the buffer. A kernel of the same program returns addresses. All this is for drivers
of processors, on which an address is the same for each kernel, and stays valid as long as the buffer exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optdb.codegen.kernels.isolation import isolate
from optdb.codegen.kernels.outlining import OutlinedKernel
from optdb.codegen.kernels.prelude import PRELUDE
from optdb.codegen.kernels.programs import TranslationUnit
from optdb.codegen.source import filled, functions
from optdb.numpy_types import HostArray
from optdb.runtime.library import cl

__all__ = ["ADDRESS", "SEQUENCE", "copy_entry", "fill_entry", "launch_entry", "listed", "sequence_program"]

#: The kernels of a program, and the numbers of the entries that need no kernel.
SEQUENCE, ADDRESS = "optdb_sequence", "optdb_address"
_END, _COPY, _FILL, _FIRST_CASE = range(4)

_ASK = re.compile(r"(?P<word>[A-Za-z_]\w*?)\s*(?:\(\s*(?P<dim>[012])\s*\)|_(?P<last>[012]))")
#: The queries of a work item that is a group of its own: its ids, the sizes of the launch, and constants.
_POSITIONS = {"get_global_id", "get_group_id", "GID"}
_COUNTS = {"get_global_size", "get_num_groups", "GDIM"}
_SAME = {"get_local_id": "0", "LID": "0", "get_local_size": "1", "LDIM": "1", "get_global_offset": "0"}

# A number may be longer than a word, and need not be aligned.
_PRELUDE = """
#define OPTDB_TAKE(x) \\
    for (int b = 0; b < (int)sizeof(x); ++b) ((char *)&x)[b] = ((const __global char *)its_list)[b]; \\
    its_list += (sizeof(x) + 7) / 8;
"""

_CODE = functions("kernels/sequences.cl")


def launch_entry(case: int, items: Sequence[int], arguments: Iterable[Any], addresses: Mapping[int, int]) -> list[int]:
    """Return the entry of a launch of the kernel with number `case`, on items in up to three dimensions.

    Arguments are buffers, None, and NumPy values, as OpenCL has taken them; addresses are by the buffers' handles.
    """
    words = [word for arg in arguments for word in _words(arg, addresses)]
    return [case, 5 + len(words), *[*items, 1, 1][:3], *words]


def copy_entry(target: int, source: int, nbytes: int) -> list[int]:
    """Return the entry of a copy from one address to another one."""
    return [_COPY, 5, target, source, nbytes]


def fill_entry(target: int, nbytes: int, pattern: np.generic) -> list[int]:
    """Return the entry of a fill with a pattern of at most 8 bytes."""
    return [_FILL, 5, target, nbytes, *np.tile(np.asarray(pattern), 8 // pattern.nbytes).view(np.uint64).tolist()]


def listed(entries: Iterable[Sequence[int]]) -> HostArray:
    """Return a list of entries, as a sequence reads it."""
    return np.array([word for entry in entries for word in entry] + [_END], np.uint64)


def sequence_program(
    kernels: Iterable[tuple[TranslationUnit, str]],
) -> tuple[str, dict[tuple[TranslationUnit, str], int]]:
    """Write a program that executes launches of kernels, each given by its unit and its name in that unit's code.

    Return its source, and the numbers of the kernels that it supports: in others, work items may depend on each
    other.
    """
    by_unit: dict[TranslationUnit, list[str]] = {}
    for unit, name in kernels:
        by_unit.setdefault(unit, []).append(name)
    texts, lines = [], []
    cases: dict[tuple[TranslationUnit, str], int] = {}
    # Sorted, so that the source is the same in each process.
    for index, unit in enumerate(sorted(by_unit, key=lambda unit: unit.codes)):
        wanted = [piece for piece in unit.pieces if isinstance(piece, OutlinedKernel) and piece.name in by_unit[unit]]
        readers = {kernel.name: _listed(kernel) for kernel in wanted}
        written = [f"{piece}{readers[piece.name] if piece in wanted else ''}" for piece in unit.pieces]
        isolated = isolate("".join(written))
        if isolated is None:
            continue
        texts.append(isolated.between(f"__{index}"))
        for name in sorted(name for name, reader in readers.items() if reader):
            number = cases[unit, name] = _FIRST_CASE + len(cases)
            lines.append(f"case {number}: {name}_listed__{index}(t); break;")
    words = {"ADDRESS": ADDRESS, "SEQUENCE": SEQUENCE, "END": _END, "COPY": _COPY, "FILL": _FILL}
    code = "".join(_CODE[name] for name in ("ADDRESS", "optdb_copy", "optdb_fill", "SEQUENCE"))
    return "".join([PRELUDE, _PRELUDE, *texts, filled(code, CASES="\n".join(lines), **words)]), cases


def _listed(kernel: OutlinedKernel) -> str:
    """Return a function that reads a kernel's arguments from a list and calls its body; '' if that is impossible."""
    values = [value for ask in kernel.queries if (value := _value_of_query(ask))]
    if len(values) < len(kernel.queries):
        return ""
    taken = "\n".join(_taken(" ".join(kind.split()), name) for kind, name in kernel.params)
    passed = ", ".join([*values, *(name for _, name in kernel.params)])
    words = {"LISTED": f"{kernel.name}_listed", "TAKEN": taken, "FUNCTION": kernel.function, "PASSED": passed}
    return filled(_CODE["LISTED"], **words)


def _value_of_query(ask: str) -> str | None:
    """Return the expression for a query of a work item; None if the query is unknown."""
    match = _ASK.fullmatch(ask)
    if match is None:
        return None
    dim = match["dim"] or match["last"]
    if match["word"] in _POSITIONS:
        return f"its_{dim}"
    return f"its_n{dim}" if match["word"] in _COUNTS else _SAME.get(match["word"])


def _taken(kind: str, name: str) -> str:
    """Return code that reads a parameter from a list."""
    if "*" in kind:
        kind = re.sub(r"\b__?restrict\b|\brestrict\b", "", kind)
        return f"{kind} {name} = ({kind})*its_list++;"
    return f"{kind.removeprefix('const ')} {name}; OPTDB_TAKE({name})"


def _words(arg: Any, addresses: Mapping[int, int]) -> list[int]:
    """Return an argument as words of a list."""
    if arg is None:
        return [0]
    if isinstance(arg, cl.MemoryObject):
        return [addresses[arg.int_ptr]]
    content = np.asarray(arg).tobytes()
    words: list[int] = np.frombuffer(content.ljust(-(-len(content) // 8) * 8, b"\0"), np.uint64).tolist()
    return words
