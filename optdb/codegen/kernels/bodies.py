"""Converts kernels to functions that another kernel can call, for ``optdb.device.launches``.

The parameters of a body include the ids that the original kernel would query, and the local memory, because a function
cannot declare local memory. Kernels that the simple scanner cannot parse are not converted. If a function outside of
kernels queries ids, no kernel in its translation unit is converted.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from optdb.codegen.kernels.isolation import ASKS, TOGETHER, declared_params, parts_of_kernel, with_query_params
from optdb.codegen.kernels.programs import TranslationUnit

_ATTRIBUTE = r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)\s*"
_HEAD = re.compile(
    rf"(?:{_ATTRIBUTE})*\b(?:OUTLINED_KERNEL|KERNEL|__kernel|kernel)\s+(?:{_ATTRIBUTE})*void\s+(?P<name>\w+)\s*(?=\()"
)
#: The declaration of an array in local memory.
_LOCAL_ARRAY = re.compile(
    r"(?<![\w(*,])(?:LOCAL_MEM|__local|local)\s+(?P<type>[A-Za-z_]\w*)\s+(?P<name>[A-Za-z_]\w*)"
    rf"\s*(?P<lengths>(?:\[[^\]\n]*\]\s*)+)(?P<attribute>(?:{_ATTRIBUTE})?);"
)
_LENGTH = re.compile(r"\[[^\]\n]*\]")
_LOCAL_POINTER = re.compile(r"\b(?:LOCAL_MEM|LOCAL_MEM_ARG|__local|local)\b")
#: Queries of ids and sizes that a body does not support.
_OTHER_QUERIES = re.compile(r"\bget_(?:work_dim|global_offset|enqueued\w*|sub_group\w*)\b|\b(?:sub|work)_group_\w+")
_BARRIER = re.compile(r"\blocal_barrier\s*\(\s*\)|\bbarrier\s*\([^()]*\)")
#: Other means of synchronization.
_OTHER_BARRIERS = re.compile(r"barrier|fence|\b(?:async_|wait_group_)\w+")
_QUERY_PARTS = re.compile(r"(?P<word>[A-Za-z_]\w*?)\s*(?:\(\s*(?P<dim>[012])\s*\)|_(?P<last>[012]))")
#: Assembly is supported only in the macro PTX: other assembly might wait for items, or use many registers.
_ASSEMBLY = re.compile(r"\basm\b")
_KERNEL = re.compile(r"\bKERNEL\b|\b__?kernel\b")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!pragma)", re.MULTILINE)
_SHORT = {"GID": "get_group_id", "LID": "get_local_id", "LDIM": "get_local_size", "GDIM": "get_num_groups"}


@dataclass(frozen=True, eq=False)
class KernelBody:
    """A kernel's body as a function, and the struct of its local memory."""

    name: str
    params: tuple[tuple[str, str], ...]  #: Type and name of each parameter.
    queries: tuple[tuple[str, str], ...]  #: Pairs of an id parameter and its query, such as ``get_group_id 0``.
    body: str
    shared: tuple[str, ...]  #: Declarations of the kernel's arrays in local memory.
    synchronizes: bool  #: Whether the items in a group depend on each other.
    #: Whether the body synchronizes only with barriers, so that it can run in *teams*, which are parts of a group.
    may_be_team: bool

    @property
    def function(self) -> str:
        """The name of the function, which takes ids, local memory (if any), and the kernel's arguments."""
        return f"{self.name}_body"

    @property
    def struct(self) -> str:
        """The name of the struct that holds the kernel's local memory."""
        return f"{self.name}_locals"

    def reads_only(self, index: int) -> bool:
        """Return whether a parameter is a pointer to a const type."""
        return bool(re.search(r"\bconst\b", self.params[index][0].split("*")[0]))

    def is_pointer(self, index: int) -> bool:
        return "*" in self.params[index][0]

    def definition(self, attribute: str, teams: bool) -> str:
        """Return the definition of the function, preceded by the definition of its struct if there is one.

        `attribute` is added to functions that do not synchronize. With `teams`, a function that may run in teams also
        takes the team's number and size.
        """
        params = [*(f"const size_t {name}" for name, _ in self.queries)]
        params += [f"__local {self.struct} *its_locals"] * bool(self.shared)
        params += [f"{kind}{name}" for kind, name in self.params]
        body = self.body
        if teams and self.may_be_team:
            params = ["const uint its_team", "const uint its_size", *params]
            body = _BARRIER.sub("its_meet(its_team, its_size)", body)
        struct = f"typedef struct {{ {' '.join(self.shared)} }} {self.struct};\n" if self.shared else ""
        # Functions with barriers must be inlined into the kernel.
        noinline = "" if self.synchronizes else attribute
        return f"{struct}{noinline}static void {self.function}({', '.join(params)})\n{body}\n"


@dataclass(frozen=True, eq=False)
class UnitBodies:
    """The kernels of a translation unit that can be converted to functions, and the text around these kernels."""

    texts: tuple[str | KernelBody, ...]
    kernels: dict[str, KernelBody]

    def code(self, names: Collection[str], attribute: str, teams: bool, after: dict[str, str]) -> str:
        """Return the unit's code with the kernels in `names` as functions, each followed by the text in `after`."""
        written = [
            text
            if isinstance(text, str)
            else f"{text.definition(attribute, teams)}{after[text.name]}"
            if text.name in names
            else ""
            for text in self.texts
        ]
        return "".join(written)


_bodies: WeakKeyDictionary[TranslationUnit, UnitBodies] = WeakKeyDictionary()


def bodies_of(unit: TranslationUnit) -> UnitBodies:
    """Return the cached bodies of a unit's kernels."""
    if unit not in _bodies:
        _bodies[unit] = _read(unit.code)
    return _bodies[unit]


def _read(code: str) -> UnitBodies:
    none = UnitBodies((), {})
    if _ASSEMBLY.search(code):
        return none
    pieces: list[str | tuple[str, str, str]] = []
    end = 0
    for head in _HEAD.finditer(code):
        parts = parts_of_kernel(code, head.end()) if head.start() >= end else None
        if parts is None:
            return none
        params, body, stop = parts
        pieces += [code[end : head.start()], (head["name"], params, body)]
        end = stop
    pieces.append(code[end:])
    outside = "".join(piece for piece in pieces if isinstance(piece, str))
    if ASKS.search(outside) or _OTHER_QUERIES.search(outside) or _KERNEL.search(outside):
        return none
    # If a function outside of kernels synchronizes work items, assume that every kernel calls it.
    together = bool(TOGETHER.search(outside))
    texts: list[str | KernelBody] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        kernel = _kernel_body(*piece, together)
        # A kernel that cannot be converted is left out, but directives in it might define macros for later code.
        if kernel is None and _DIRECTIVE.search(piece[2]):
            return none
        texts += [] if kernel is None else [kernel]
    return UnitBodies(tuple(texts), {text.name: text for text in texts if isinstance(text, KernelBody)})


def _kernel_body(name: str, params: str, body: str, together: bool) -> KernelBody | None:
    declared = declared_params(params)
    if declared is None or any(_LOCAL_POINTER.search(kind) for kind, _ in declared):
        return None
    synchronizes = together or bool(TOGETHER.search(body))
    shared: list[str] = []

    def as_pointer(array: re.Match[str]) -> str:
        lengths = _LENGTH.findall(array["lengths"])
        field = array["name"]
        shared.append(f"{array['type']} {field}{''.join(lengths)} {array['attribute']};")
        if len(lengths) == 1:
            return f"__local {array['type']} *{field} = its_locals->{field};"
        return f"__local {array['type']} (*{field}){''.join(lengths[1:])} = its_locals->{field};"

    names = [array["name"] for array in _LOCAL_ARRAY.finditer(body)]
    # A pointer cannot replace an array whose size or address is used.
    if any(re.search(rf"\bsizeof\s*\(?\s*{field}\b(?!\s*\[)|&\s*{field}\b(?!\s*\[)", body) for field in names):
        return None
    body = _LOCAL_ARRAY.sub(as_pointer, body)
    body, params_of = with_query_params(body)
    if ASKS.search(body) or _OTHER_QUERIES.search("".join(params_of) + body):
        return None
    queries = tuple((param, _normal(query)) for query, param in params_of.items())
    may_be_team = synchronizes and not together and not _OTHER_BARRIERS.search(_BARRIER.sub("", body))
    return KernelBody(name, declared, queries, body, tuple(shared), synchronizes, may_be_team)


def _normal(query: str) -> str:
    """Return the function and the dimension of a query, for example ``get_group_id 0``."""
    match = _QUERY_PARTS.fullmatch(query)
    assert match is not None  # every query matches this pattern
    return f"{_SHORT.get(match['word'], match['word'])} {match['dim'] or match['last']}"
