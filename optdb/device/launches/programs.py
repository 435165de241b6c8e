"""Merged kernels: one kernel runs the launches, copies and fills that a table lists (``entries``).

A *tile* is the work that one group does at a time: a piece of a copy, or several work items of a command, one for each
item of the group. The merged kernel calls each kernel in the table as a function, which ``bodies`` generates. A kernel
whose items synchronize needs groups of its own group size, or runs in *teams*, which are parts of a group that
synchronize separately (``GridBarrier.has_teams``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.kernels.bodies import KernelBody, bodies_of
from optdb.codegen.kernels.isolation import isolate
from optdb.codegen.kernels.prelude import PRELUDE
from optdb.codegen.kernels.programs import TranslationUnit
from optdb.codegen.source import filled, functions
from optdb.device.launches.entries import ADDRESS, COPY, FILL, FIRST_CASE, PIECE_NBYTES
from optdb.runtime.grid_barriers import GROUP_BARRIER, GridBarrier

#: The maximum number of 64-bit words in a persistent kernel's table entry.
ENTRY_WORDS = 128
NOINLINE = "__attribute__((noinline)) "

#: A kernel: its translation unit, and its name in the unit's code.
KernelKey = tuple[TranslationUnit, str]

#: The name of the function that reads a kernel's arguments.
_READER = "{}_listed"
_CODE = functions("kernels/launches.cl")


def _id_in_loop(word: str, dim: int) -> str:
    """Return the expression that replaces an id query if one work item loops over all items."""
    if word == "get_local_id":
        return "0"
    if word == "get_local_size":
        return "1"
    return f"its_{dim}" if word in ("get_global_id", "get_group_id") else f"its_n{dim}"


def _id_in_group(word: str, dim: int) -> str:
    """Return the expression that replaces an id query if work items are numbered group by group."""
    below = "".join(f" / its_{{0}}{n}" for n in range(dim))
    group = f"(its_g{below.format('n')}" + (f" % its_n{dim})" if dim < 2 else ")")
    local = f"(its_l{below.format('s')}" + (f" % its_s{dim})" if dim < 2 else ")")
    if dim == 0:
        group, local = f"(its_flat ? its_g : {group})", f"(its_flat ? its_l : {local})"
    return {
        "get_global_id": f"({group} * its_s{dim} + {local})",
        "get_group_id": group,
        "get_local_id": local,
        "get_global_size": f"(its_n{dim} * its_s{dim})",
        "get_num_groups": f"its_n{dim}",
        "get_local_size": f"its_s{dim}",
    }[word]


@dataclass(frozen=True)
class Form:
    """The form of a merged kernel; ``launches.cl`` defines the functions named here."""

    function: str  #: The kernel's name.
    reader: str  #: Names the function that reads a launch's arguments and calls the kernel's body.
    passed: str  #: The arguments that are passed to the reader.
    space: str  #: The address space of the entry.
    value_of_query: Callable[[str, int], str]
    item: str = "get_local_id(0)"
    piece_nbytes: str = str(PIECE_NBYTES)
    synchronizes: bool = False  #: Whether the merged kernels may contain barriers.


#: The three forms: one work item executes all commands in order; each group executes one tile, in any order; resident
#: groups divide the tiles of a *phase* of independent commands, and then meet at a grid barrier.
SEQUENCE, SCATTERED, PERSISTENT = "optdb_sequence", "optdb_scattered", "optdb_persistent"
_FORMS = {
    SEQUENCE: Form("SEQUENCE", "ITEMS_OF_LAUNCH", "entry", "__global", _id_in_loop, item="0", piece_nbytes="~0UL"),
    SCATTERED: Form("SCATTERED", "ITEMS_OF_LAUNCH", "entry", "__global", _id_in_loop),
    PERSISTENT: Form("PERSISTENT", "ITEM_OF_LAUNCH", "entry, index", "__local", _id_in_group, synchronizes=True),
}


def merged_program(
    kernel: str,
    kernels: Mapping[KernelKey, int],
    items: int,
    barrier: GridBarrier = GROUP_BARRIER,
) -> tuple[str, dict[KernelKey, int]]:
    """Write a program that runs the work groups of several kernels in groups of `items` items.

    Return the source, and a mapping from kernels to case numbers. Kernels that a merged kernel of this form cannot run
    have no case number. `kernels` maps each kernel to the smallest group size of its launches.
    """
    form = _FORMS[kernel]
    by_unit: dict[TranslationUnit, list[str]] = {}
    for unit, name in kernels:
        body = bodies_of(unit).kernels.get(name)
        if body is not None and (form.synchronizes or not body.synchronizes):
            by_unit.setdefault(unit, []).append(name)
    texts, lines, structs = [], [], []
    cases: dict[KernelKey, int] = {}
    # The units are sorted, so that the source is identical in every process.
    for index, unit in enumerate(sorted(by_unit, key=lambda unit: unit.codes)):
        bodies = bodies_of(unit)
        names = sorted(by_unit[unit])
        readers = {name: _reader(form, bodies.kernels[name], items, barrier.has_teams) for name in names}
        isolated = isolate(bodies.code(names, NOINLINE, barrier.has_teams, readers))
        if isolated is None:
            continue
        texts.append(isolated.between(f"__{index}"))
        for name in names:
            body, case = bodies.kernels[name], FIRST_CASE + len(cases)
            passed = form.passed
            if body.shared:
                teams = items // kernels[unit, name] if barrier.has_teams and body.may_be_team else 1
                structs.append(f"{body.struct}__{index} of_{case}[{max(teams, 1)}];")
                passed += f", its_locals.of_{case}"
            cases[unit, name] = case
            lines.append(f"case {case}: {_READER.format(name)}__{index}({passed}); break;")
    words = _words(kernel, form, items, barrier, structs, lines)
    entry = ["optdb_entry"] if form.space == "__local" else []
    code = "".join(_CODE[name] for name in ("ADDRESS", *entry, "optdb_copy_tile", "optdb_fill_tile", form.function))
    return "".join([PRELUDE, barrier.functions, *texts, filled(code, **words)]), cases


def _words(
    kernel: str, form: Form, items: int, barrier: GridBarrier, structs: Sequence[str], cases: Sequence[str]
) -> dict[str, Any]:
    """Return the template values for a form's kernel; `structs` declare the local memory of the merged kernels."""
    shared = f"__local union {{ {' '.join(structs)} }} its_locals;" if structs else ""
    return {
        form.function: kernel,
        "ADDRESS": ADDRESS,
        "COPY": COPY,
        "FILL": FILL,
        "ITEM": form.item,
        "ITEMS": items,
        "PIECE": form.piece_nbytes,
        "SPACE": form.space,
        # Functions that are not inlined must not query ids.
        "ATTRIBUTE": NOINLINE if form.item == "0" else "",
        "ENTRY_WORDS": ENTRY_WORDS,
        "LOCALS": f"{shared}\n{barrier.locals}",
        "CASES": "\n".join(cases),
        "STARTED": barrier.at_start,
        "ARRIVAL": barrier.arrival,
        "WAIT": barrier.wait,
        "ENDED": barrier.at_end,
    }


def _reader(form: Form, kernel: KernelBody, items: int, has_teams: bool) -> str:
    """Return a function that reads a kernel's arguments from an entry and calls its body."""
    lines = [
        "uint its_word = 8;",
        *(_read_parameter(form, " ".join(kind.split()), name) for kind, name in kernel.params),
    ]
    queries = [query.split() for _, query in kernel.queries]
    values = [form.value_of_query(word, int(dim)) for word, dim in queries]
    is_team = has_teams and kernel.may_be_team
    if is_team:
        lines.append("const uint its_team = (uint)get_local_id(0) / its_size;")
        values = ["its_team + 1", "its_size", *values]
    if kernel.shared:
        values.append("its_locals + its_team" if is_team else "its_locals")
    words = {
        form.reader: _READER.format(kernel.name),
        "ATTRIBUTE": NOINLINE,
        "ITEMS": items,
        "LOCAL_PARAM": f", __local {kernel.struct} *its_locals" if kernel.shared else "",
        # Only kernels without barriers may skip items, because all items of a group must reach a barrier.
        "GUARD": "if (its_index >= (uint)its_list[1]) return;" if is_team or not kernel.synchronizes else "",
        "TAKEN": "\n".join(lines),
        "FUNCTION": kernel.function,
        "PASSED": ", ".join([*values, *(name for _, name in kernel.params)]),
    }
    return filled(_CODE[form.reader], **words)


def _read_parameter(form: Form, kind: str, name: str) -> str:
    if "*" in kind:
        kind = re.sub(r"\b__?restrict\b|\brestrict\b", "", kind)
        return f"{kind} {name} = ({kind})its_list[its_word++];"
    kind = re.sub(r"\bconst\b", "", kind).strip()
    words = f"((uint)(sizeof({kind}) + 7) / 8)"
    aligned = f"its_word = (its_word + {words} - 1) / {words} * {words};"
    return f"{aligned} const {kind} {name} = *(const {form.space} {kind} *)(its_list + its_word); its_word += {words};"
