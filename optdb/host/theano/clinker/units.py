"""Combines modules with the same flags, libraries and headers into translation units.

Each module has its own namespace and an init function with a unique name, and the macros that it changes are restored
after its code. Support code precedes the namespaces, because it may contain anything, and must be identical in all
modules of a unit. A module is compiled alone if its own code, which comes after the includes and the support code,
contains an ``#include`` or a pragma other than OpenMP's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from theano.gof.utils import MethodNotDefined

from optdb.host.theano.clinker import outlining, outlining_loops, shared_thunks

#: Modules with more characters are compiled alone, because GCC limits inlining in large units.
MAX_SHARED_CHARS = 200_000
#: The maximum length of an op's printed name. The name of a fused op contains its whole code, which may be long.
MAX_OP_CHARS = 80

COMMON_HEADERS = (
    *("<Python.h>", "<iostream>", '"theano_mod_helper.h"', "<math.h>"),
    *("<numpy/arrayobject.h>", "<numpy/arrayscalars.h>"),
)

#: Headers that do not affect other code, since no op in Theano has a using-directive for ``std``.
HARMLESS_HEADERS = ("<vector>", "<algorithm>", "<cmath>", "<time.h>", "<sys/time.h>")

#: A header that takes as long to compile as all the other headers together. Theano's tensor code uses it only for debug
#: output.
_STREAM_HEADER = "<iostream>"

LIGHT_HEADERS = tuple(header for header in COMMON_HEADERS + HARMLESS_HEADERS if header != _STREAM_HEADER)

_LIGHT_NAMES = frozenset({"abs", "max", "min", "pair", "pow", "reverse_iterator", "sort", "vector"})
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STD_NAME = re.compile(r"\bstd\s*::\s*(\w+)|\b(using)\s+namespace\b")

_ARRAY_HEADER = "<numpy/arrayobject.h>"

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)", re.MULTILINE)
_MACRO = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)

#: The preprocessor directives that the own parts of modules in a shared translation unit may contain.
_CONTAINED = frozenset({"define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif"})
_OPENMP = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp\b", re.MULTILINE)
_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma\b", re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    """The compiler's flags in Theano's order, and the headers and support code that precede a module's own code."""

    compiler: Any
    args: tuple[str, ...]
    header_dirs: tuple[str, ...]
    libraries: tuple[str, ...]
    lib_dirs: tuple[str, ...]
    includes: tuple[str, ...]
    prelude: tuple[str, ...]


@dataclass(frozen=True)
class Translation:
    """The code of one module: the full source, the module's own part ('' if it is compiled alone), and its ops."""

    name: str
    source: str
    own_code: str
    environment: Environment
    ops: tuple[str, ...] = ()

    # The following properties are computed on demand, because only modules that must be compiled need them.

    @functools.cached_property
    def can_share(self) -> bool:
        """Whether the module can be in one translation unit with other modules."""
        return 0 < len(self._outlined) <= MAX_SHARED_CHARS

    @functools.cached_property
    def body(self) -> str:
        """The code to compile: the full source or, in a shared translation unit, code that calls shared functions."""
        return self._outlined if self.can_share else self.source

    @functools.cached_property
    def _outlined(self) -> str:
        """The module's own part, calling shared functions; '' if its directives would affect other modules."""
        if not is_contained(self.own_code):
            return ""
        return shared_thunks.share(outlining_loops.outline_loops(outlining.outline(self.own_code)))

    @property
    def effort(self) -> int:
        """The amount of code to compile, in characters."""
        return len(self.body)


def module_of(linker: Any) -> Translation:
    """Return the module code of a CLinker that has accepted a graph; if an op has no C code, raise the op's error."""
    module = linker.get_dynamic_module()
    source = module.code()
    prelude = _prelude(linker)
    own_code = _own_part(source, prelude)
    environment = Environment(
        compiler=linker.c_compiler(),
        args=tuple(linker.compile_args()),
        header_dirs=tuple(linker.header_dirs()),
        libraries=tuple(linker.libraries()),
        lib_dirs=tuple(linker.lib_dirs()),
        includes=_includes(module.includes, [*prelude, own_code]),
        prelude=prelude,
    )
    ops = tuple(str(node.op)[:MAX_OP_CHARS] for node in linker.node_order)
    return Translation(module.code_hash, source, own_code, environment, ops)


def _own_part(source: str, prelude: Sequence[str]) -> str:
    """Return a module's code without its includes and prelude; '' if the source lacks either."""
    heading = "//////////////////////\n////  Support Code\n//////////////////////\n"
    _, separator, body = source.partition(heading)
    is_complete = bool(separator)
    for code in prelude:
        before, separator, after = body.partition(f"{code}\n")
        is_complete, body = is_complete and bool(separator), before + after
    return body if is_complete else ""


def _prelude(linker: Any) -> tuple[str, ...]:
    """Return the ops' and types' support code that must precede the namespaces."""
    texts: dict[str, None] = {}
    for owner in (*(var.type for var in linker.variables), *(node.op for node in linker.node_order)):
        try:
            code = owner.c_support_code()
        except MethodNotDefined:
            continue
        is_trusted = _is_theanos(owner)
        for text in code if isinstance(code, list) else [code]:
            if text and not (is_trusted and 'extern "C"' not in text):
                texts[text] = None
    return tuple(texts)


def _is_theanos(owner: Any) -> bool:
    if not type(owner).__module__.startswith("theano."):
        return False
    if hasattr(owner, "scalar_op"):
        return _is_theanos(owner.scalar_op)
    inner = getattr(owner, "fgraph", None)
    return inner is None or all(_is_theanos(node.op) for node in inner.apply_nodes)


def _includes(includes: Iterable[str], code: Sequence[str]) -> tuple[str, ...]:
    """Return a module's includes; if all are common or harmless, return one of two tuples that modules share."""
    bracketed = list(dict.fromkeys(_bracketed(include) for include in includes if include))
    front, rest = tuple(bracketed[: len(COMMON_HEADERS)]), bracketed[len(COMMON_HEADERS) :]
    if front == COMMON_HEADERS and set(rest).issubset(HARMLESS_HEADERS):
        return COMMON_HEADERS + HARMLESS_HEADERS if any(map(_may_print, code)) else LIGHT_HEADERS
    return tuple(bracketed)


def _may_print(code: str) -> bool:
    return any(using or name not in _LIGHT_NAMES for name, using in _STD_NAME.findall(_COMMENT.sub("", code)))


def is_contained(body: str) -> bool:
    """Return whether the effects of a module's directives can be undone after its code."""
    pragmas = len(_PRAGMA.findall(body))
    directives = [name for name in _DIRECTIVE.findall(body) if name != "pragma"]
    return _CONTAINED.issuperset(directives) and pragmas == len(_OPENMP.findall(body))


def _bracketed(include: str) -> str:
    return include if include[0] in '<"' else f'"{include}"'


def group(modules: Iterable[Translation], parallel: int, min_effort: int, max_modules: int) -> list[list[Translation]]:
    """Divide modules into units with similar compile times, sorted from the largest to the smallest.

    A unit has at most `max_modules` modules, and about `min_effort` characters or more if enough modules can share it.
    If a unit does not compile, `ModuleBuilder` compiles its modules one by one.
    """
    modules = sorted(modules, key=lambda module: (-module.effort, module.name))
    alone = [[module] for module in modules if not module.can_share]
    together: dict[Environment, list[Translation]] = {}
    for module in modules:
        if module.can_share:
            together.setdefault(module.environment, []).append(module)
    fair = max(min_effort, sum(module.effort for module in modules) // parallel)
    units = [*alone]
    for members in together.values():
        number = max(round(sum(module.effort for module in members) / fair), -(-len(members) // max_modules), 1)
        units += _dealt(members, min(number, len(members)))
    return sorted(units, key=lambda unit: -sum(module.effort for module in unit))


def _dealt(modules: list[Translation], number: int) -> list[list[Translation]]:
    """Assign each module, the largest first, to the unit with the least effort so far."""
    units: list[list[Translation]] = [[] for _ in range(number)]
    efforts = [0] * number
    for module in modules:
        least = efforts.index(min(efforts))
        units[least].append(module)
        efforts[least] += module.effort
    return units


def unit_text(modules: Sequence[Translation]) -> str:
    """Return the text of a translation unit, whose modules share an environment."""
    if len(modules) == 1 and not modules[0].can_share:
        return modules[0].source
    environment = modules[0].environment
    helpers = [outlining.HELPERS, shared_thunks.HELPERS]
    if _ARRAY_HEADER in environment.includes:
        helpers += [outlining.ARRAY_HELPERS, outlining_loops.LOOP_HELPERS, shared_thunks.ARRAY_HELPERS]
    parts = [
        *(f"#include {include}" for include in environment.includes),
        *environment.prelude,
        *helpers,
        *map(_in_namespace, modules),
    ]
    return "\n".join([*parts, ""])


def _in_namespace(module: Translation) -> str:
    macros = list(dict.fromkeys(_MACRO.findall(module.body)))
    before = [f'#pragma push_macro("{name}")' for name in macros]
    after = [f'#pragma pop_macro("{name}")' for name in reversed(macros)]
    return "\n".join([*before, f"namespace optdb_{module.name} {{", module.body, "}", *after])
