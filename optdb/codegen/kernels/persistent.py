"""One kernel for many launches, whose groups stay: a persistent kernel.

A launch has overhead, on a GPU longer than a small kernel runs. :func:`persistent_program` writes a kernel that runs
the groups of other kernels, of copies and of fills. Its work is a table. A *tile* is what one group does at a time: as
many work items of a command as the group has, or a piece of a copy. A *phase* is the tiles of commands that do not
depend on each other; the groups share them out, and meet at a grid barrier before the next phase.

An entry of the table is a command: the number of its case in the kernel, and its operands. For a launch these are the
number of its items, the size of a group, the number of groups, and the arguments, where an address stands for a buffer.
A group copies the entry into local memory, the one of the next phase while it waits for the other groups.

Work items are numbered group by group, and a tile has the next ones. So the items of a kernel without barriers run in
any groups. A kernel whose items synchronize needs groups as large as those of the persistent kernel, or *teams*: where
some items of a group can meet (``GridBarrier.has_teams``), several of its groups run side by side in one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optdb.codegen.kernels.bodies import KernelBody, bodies_of
from optdb.codegen.kernels.isolation import isolate
from optdb.codegen.kernels.prelude import PRELUDE
from optdb.codegen.kernels.programs import TranslationUnit
from optdb.codegen.source import filled, functions
from optdb.runtime.grid_barriers import GridBarrier
from optdb.runtime.library import cl

__all__ = [
    "ENTRY_WORDS",
    "PERSISTENT",
    "PIECE_NBYTES",
    "Constants",
    "copy_entry",
    "fill_entry",
    "launch_entry",
    "packed_numbers",
    "persistent_program",
]

#: The kernel of a program, and the numbers of the entries that need no other kernel.
PERSISTENT = "optdb_persistent"
_COPY, _FILL, _FIRST_CASE = range(3)
#: The words of 64 bits of an entry, at most.
ENTRY_WORDS = 128
#: A tile of a copy or a fill has so many bytes.
PIECE_NBYTES = 1 << 14

#: Packed numbers, as kernels call them, and their bytes.
_PACKED, _PACKED_NBYTES = "long16", 128

#: Packed numbers of a launch, each as its bytes.
Constants = tuple[bytes, ...]
#: A kernel, by its unit and its name in that unit's code, and the packed numbers for which it is compiled; () is any.
Case = tuple[TranslationUnit, str, Constants]

_CODE = functions("kernels/persistent.cl")


def launch_entry(
    case: int, group: Sequence[int], groups: Sequence[int], arguments: Iterable[Any], addresses: Mapping[int, int]
) -> list[int] | None:
    """Return the entry of a launch of the kernel with number `case`; None if it has too many arguments.

    Arguments are buffers, None, and NumPy values, as OpenCL has taken them; addresses are by the buffers' handles.
    """
    group, groups = [*group, 1, 1][:3], [*groups, 1, 1][:3]
    words = [case, int(np.prod(group)) * int(np.prod(groups)), *group, *groups]
    for argument in arguments:
        content = _content(argument, addresses)
        align = _aligned_words(len(content))
        words += [0] * (-len(words) % align)
        words += np.frombuffer(content.ljust(-(-len(content) // 8) * 8, b"\0"), np.uint64).tolist()
    return words if len(words) <= ENTRY_WORDS else None


def copy_entry(target: int, source: int, nbytes: int) -> list[int]:
    """Return the entry of a copy from one address to another one."""
    return [_COPY, target, source, nbytes]


def fill_entry(target: int, nbytes: int, pattern: np.generic) -> list[int]:
    """Return the entry of a fill with a pattern of at most 16 bytes."""
    content = np.asarray(pattern).tobytes()
    return [_FILL, target, nbytes, 0, *np.frombuffer(content * (16 // len(content)), np.uint64).tolist()]


def persistent_program(
    kernels: Mapping[tuple[TranslationUnit, str], int],
    constants: Mapping[tuple[TranslationUnit, str], Collection[Constants]],
    items: int,
    barrier: GridBarrier,
    attribute: str,
) -> tuple[str, dict[Case, int]]:
    """Write a program that runs the groups of kernels, each given by its unit and its name in that unit's code.

    Return its source, and the numbers of the cases that it has: one of each kernel for any numbers, and one for each of
    its `constants`.

    Parameters
    ----------
    kernels : mapping
        By kernel, the smallest group of its launches.
    constants : mapping
        By kernel, the packed numbers of launches for which the compiler is to know them. Such a case takes the same
        entries.
    items : int
        The work items of a group of the persistent kernel.
    barrier : GridBarrier
        How its groups meet.
    attribute : str
        What functions without barriers are declared with.
    """
    by_unit: dict[TranslationUnit, list[str]] = {}
    for unit, name in kernels:
        if name in bodies_of(unit).kernels:
            by_unit.setdefault(unit, []).append(name)
    texts, lines, structs = [], [], []
    cases: dict[Case, int] = {}
    # Sorted, so that the source is the same in each process.
    for index, unit in enumerate(sorted(by_unit, key=lambda unit: unit.codes)):
        bodies = bodies_of(unit)
        names = sorted(by_unit[unit])
        known = {name: [(), *sorted(constants.get((unit, name), ()))] for name in names}
        readers = {
            name: "".join(
                _listed(bodies.kernels[name], items, barrier.has_teams, number, numbers)
                for number, numbers in enumerate(known[name])
            )
            for name in names
        }
        isolated = isolate(bodies.code(names, attribute, barrier.has_teams, readers))
        if isolated is None:
            continue
        texts.append(isolated.between(f"__{index}"))
        for name in names:
            body, first = bodies.kernels[name], _FIRST_CASE + len(cases)
            passed = ""
            if body.shared:
                teams = items // kernels[unit, name] if barrier.has_teams and body.may_be_team else 1
                structs.append(f"{body.struct}__{index} of_{first}[{max(teams, 1)}];")
                passed = f", its_locals.of_{first}"
            for which, numbers in enumerate(known[name]):
                cases[unit, name, numbers] = first + which
                lines.append(
                    f"case {first + which}: {_listed_name(name, which)}__{index}(entry, index{passed}); break;"
                )
    code = "".join(_CODE[name] for name in ("optdb_entry", "optdb_copy_tile", "optdb_fill_tile", "PERSISTENT"))
    kernel = filled(code, **_words(items, barrier, structs, lines))
    return "".join([PRELUDE, barrier.functions, *texts, kernel]), cases


def _words(items: int, barrier: GridBarrier, structs: Sequence[str], cases: Sequence[str]) -> dict[str, Any]:
    """Return the words of the persistent kernel; `structs` declare the local memory of the kernels that it runs."""
    shared = f"__local union {{ {' '.join(structs)} }} its_locals;" if structs else ""
    return {
        "PERSISTENT": PERSISTENT,
        "COPY": _COPY,
        "FILL": _FILL,
        "ITEMS": items,
        "PIECE": PIECE_NBYTES,
        "ENTRY_WORDS": ENTRY_WORDS,
        "LOCALS": f"{shared}\n{barrier.locals}",
        "CASES": "\n".join(cases),
        "STARTED": barrier.at_start,
        "ARRIVAL": barrier.arrival,
        "WAIT": barrier.wait,
        "ENDED": barrier.at_end,
    }


def packed_numbers(arguments: Iterable[Any]) -> Constants:
    """Return the packed numbers among the arguments of a launch, each as its bytes."""
    contents = (np.asarray(x).tobytes() for x in arguments if isinstance(x, (np.ndarray, np.void)))
    return tuple(content for content in contents if len(content) == _PACKED_NBYTES)


def _listed_name(name: str, which: int) -> str:
    """Return what a function is called that reads the arguments of a kernel, for some of its constants."""
    return f"{name}_listed_{which}" if which else f"{name}_listed"


def _listed(kernel: KernelBody, items: int, has_teams: bool, which: int, constants: Constants) -> str:
    """Return a function that reads a kernel's arguments from an entry and calls its body."""
    left = list(constants)
    lines = ["uint its_word = 8;"]
    for kind, name in kernel.params:
        kind = " ".join(kind.split())
        is_known = bool(left) and re.sub(r"\bconst\b", "", kind).strip() == _PACKED
        lines.append(_taken(kind, name, _literal(left.pop(0)) if is_known else None))
    values = [_value_of_query(*query.split()) for _, query in kernel.queries]
    is_team = has_teams and kernel.may_be_team
    if is_team:
        lines.append("const uint its_team = (uint)get_local_id(0) / its_size;")
        values = ["its_team + 1", "its_size", *values]
    if kernel.shared:
        values.append("its_locals + its_team" if is_team else "its_locals")
    words = {
        "LISTED": _listed_name(kernel.name, which),
        "ITEMS": items,
        "LOCAL_PARAM": f", __local {kernel.struct} *its_locals" if kernel.shared else "",
        # All items of a group meet at the barriers of a kernel.
        "GUARD": "if (its_index >= (uint)its_list[1]) return;" if is_team or not kernel.synchronizes else "",
        "TAKEN": "\n".join(lines),
        "FUNCTION": kernel.function,
        "PASSED": ", ".join([*values, *(name for _, name in kernel.params)]),
    }
    return filled(_CODE["LISTED"], **words)


def _value_of_query(word: str, dim: str) -> str:
    """Return the expression for a query of a work item."""
    d = int(dim)
    below = "".join(f" / its_{{0}}{n}" for n in range(d))
    group = f"(its_g{below.format('n')}" + (f" % its_n{d})" if d < 2 else ")")
    local = f"(its_l{below.format('s')}" + (f" % its_s{d})" if d < 2 else ")")
    if d == 0:
        group, local = f"(its_flat ? its_g : {group})", f"(its_flat ? its_l : {local})"
    return {
        "get_global_id": f"({group} * its_s{d} + {local})",
        "get_group_id": group,
        "get_local_id": local,
        "get_global_size": f"(its_n{d} * its_s{d})",
        "get_num_groups": f"its_n{d}",
        "get_local_size": f"its_s{d}",
    }[word]


def _literal(content: bytes) -> str:
    """Return packed numbers as an expression. The smallest one of 64 bits has no literal."""
    numbers = np.frombuffer(content, np.int64).tolist()
    return f"({_PACKED})({', '.join('LONG_MIN' if x == np.iinfo(np.int64).min else f'{x}L' for x in numbers)})"


def _taken(kind: str, name: str, literal: str | None) -> str:
    """Return code that reads a parameter from the word of an entry where it is aligned, or has a literal instead."""
    if "*" in kind:
        kind = re.sub(r"\b__?restrict\b|\brestrict\b", "", kind)
        return f"{kind} {name} = ({kind})its_list[its_word++];"
    kind = re.sub(r"\bconst\b", "", kind).strip()
    words = f"((uint)(sizeof({kind}) + 7) / 8)"
    aligned = f"its_word = (its_word + {words} - 1) / {words} * {words};"
    value = literal or f"*(const __local {kind} *)(its_list + its_word)"
    return f"{aligned} const {kind} {name} = {value}; its_word += {words};"


def _aligned_words(nbytes: int) -> int:
    """Return to how many words an argument is aligned: OpenCL's numbers are aligned to their sizes."""
    return -(-nbytes // 8) or 1


def _content(argument: Any, addresses: Mapping[int, int]) -> bytes:
    if argument is None:
        return bytes(8)
    if isinstance(argument, cl.MemoryObject):
        return np.uint64(addresses[argument.int_ptr]).tobytes()
    return np.asarray(argument).tobytes()
