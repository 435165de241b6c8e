"""Builds kernels: all kernels of a function in one program.

:func:`compile_kernels` makes a :class:`TranslationUnit` from the code of a node's kernels. A `one_program` block
collects units and builds them as a few programs when it exits: on PoCL, twenty kernels take 3.1 s in twenty programs,
and 0.13 s in one. If a joint program does not compile, its units are built one by one, so that the error shows the
faulty code.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from weakref import WeakValueDictionary

from optdb.codegen.kernels.isolation import Isolated, isolate, outlined
from optdb.codegen.kernels.kernel import Kernel
from optdb.codegen.kernels.launching import CompiledKernel
from optdb.codegen.kernels.params import Param
from optdb.codegen.kernels.prelude import PRELUDE
from optdb.runtime.build import BuildError, make
from optdb.runtime.context import Context
from optdb.runtime.library import cl

_logger = logging.getLogger(__name__)

#: Maximum number of programs that are compiled at the same time for a function, and minimum number of characters in
#: each program.
_MOST_PROGRAMS, _LEAST_TEXT = 8, 50_000

#: A thread holds this lock while it builds programs, so that no two threads build the same unit.
_building = threading.RLock()
#: For each thread, the units that are built when the current `one_program` block exits; None outside of a block.
_waiting = threading.local()
#: Maps a program and a kernel's name in that program to the kernel's unit. Units keep their programs alive.
_origins: WeakValueDictionary[tuple[int, str], TranslationUnit] = WeakValueDictionary()


class TranslationUnit:
    """Kernels that are built together, and their distinct sources; `title` names the owner in errors."""

    def __init__(self, context: Context, codes: tuple[str, ...], title: str) -> None:
        self.context = context
        self.codes = codes
        self.title = title
        self.built = False
        self._program: cl.Program | None = None
        self._ending = ""
        self._kernels: dict[tuple[str, tuple[Param, ...]], CompiledKernel] = {}

    @functools.cached_property
    def code(self) -> str:
        """Return all sources as one string."""
        return "\n".join(self.codes)

    @functools.cached_property
    def outlined(self) -> tuple[str, frozenset[str]]:
        """Return the code, with bodies outlined if the driver needs it, and the names of the outlined kernels."""
        return outlined(self.code) if self.context.profile.quirks.compiles_body_repeatedly else (self.code, frozenset())

    def launcher(self, kernel: Kernel) -> CompiledKernel:
        """Return the launcher of one of the kernels; repeated calls return the same object."""
        key = (kernel.name, kernel.params)
        if key not in self._kernels:
            launcher = CompiledKernel(kernel, self.context, lambda: build_units([self]))
            if self.built:
                assert self._program is not None
                self._attach(launcher, self._program)
            self._kernels[key] = launcher
        return self._kernels[key]

    def isolated(self) -> Isolated | None:
        """Return the unit's code, isolated from other code of a joint program; None if the unit must be built alone."""
        isolated = isolate(self.outlined[0])
        if isolated is None or not all(name in isolated.names for name, _ in self._kernels):
            return None
        return isolated

    def attach(self, program: cl.Program, ending: str = "") -> None:
        """Take the kernels from a program, in which their names have the suffix `ending`."""
        self._program, self._ending = program, ending
        for launcher in self._kernels.values():
            self._attach(launcher, program)
        self.built = True

    def _attach(self, launcher: CompiledKernel, program: cl.Program) -> None:
        name = launcher.name + self._ending
        launcher.attach(program, name)
        _origins[program.int_ptr, name] = self

    def build(self) -> None:
        """Build a program from this unit alone; raise BuildError if it does not compile, or an error from `attach`."""
        code, names = self.outlined
        if names:
            try:
                self.attach(make(self.context, PRELUDE + code, name=self.title))
                return
            except BuildError as error:
                _logger.info("%s is built as one piece instead: %s", self.title, error)
        self.attach(make(self.context, PRELUDE + self.code, name=self.title, own_lines=PRELUDE.count("\n")))


#: A unit, and the unit's isolated code for a joint program.
_Part = tuple[TranslationUnit, Isolated]


def compile_kernels(kernels: Iterable[Kernel], context: Context, name: str = "a kernel") -> dict[str, CompiledKernel]:
    """Build kernels with distinct names as one program, or collect them in `one_program`; return them by name.

    `name` is the owner's name in errors. Raise UnsupportedKernel if the device lacks a feature, and BuildError if the
    code does not compile.
    """
    kernels = list(kernels)
    names = [kernel.name for kernel in kernels]
    if len(set(names)) < len(names):
        raise ValueError(f"{name} has two kernels with the same name among {names}")
    for kernel in kernels:
        kernel.require(context)
    codes = tuple(dict.fromkeys(kernel.code for kernel in kernels))
    units = context.kept.setdefault(__name__, {})
    # Add the launchers while holding the lock, so that the thread that builds the unit also attaches these launchers.
    with _building:
        if codes not in units:
            units[codes] = TranslationUnit(context, codes, f"{name} (kernels: {', '.join(names)})")
        unit = units[codes]
        compiled = {kernel.name: unit.launcher(kernel) for kernel in kernels}
    if unit.built:
        return compiled
    waiting = getattr(_waiting, "units", None)
    if waiting is None:
        build_units([unit])
    else:
        waiting[unit] = None
    return compiled


def try_compile(
    kernels: Iterable[Kernel], context: Context, name: str, consequence: str
) -> dict[str, CompiledKernel] | None:
    """Build optional kernels immediately; if the build fails, log a warning with the consequence and return None."""
    waiting = getattr(_waiting, "units", None)
    _waiting.units = None
    try:
        return compile_kernels(kernels, context, name)
    except BuildError as error:
        _logger.warning("%s, because a kernel does not build:\n%s", consequence, error.log)
        return None
    finally:
        _waiting.units = waiting


@contextmanager
def one_program() -> Iterator[None]:
    """Collect the kernels that this thread compiles in the block; on exit, build one program per context."""
    if getattr(_waiting, "units", None) is not None:
        yield  # in the compilation of a nested function, such as Scan's, whose kernels the outer block builds
        return
    units: dict[TranslationUnit, None] = {}
    _waiting.units = units
    try:
        yield
    finally:
        _waiting.units = None
    build_units(units)


def build_units(units: Iterable[TranslationUnit]) -> None:
    """Build the units that have not been built, as one program per context."""
    with _building:
        of_context: dict[Context, list[TranslationUnit]] = {}
        for unit in units:
            if not unit.built:
                of_context.setdefault(unit.context, []).append(unit)
        for context, together in of_context.items():
            try:
                _build_jointly(context, together)
            finally:
                for unit in together:
                    if not unit.built:
                        # This makes the next call that compiles these kernels also raise the error.
                        context.kept[__name__].pop(unit.codes, None)


def origin(kernel: cl.Kernel) -> tuple[TranslationUnit, str] | None:
    """Return a kernel's translation unit and the kernel's name in the unit's code; None if no unit built the kernel."""
    name = kernel.function_name
    unit = _origins.get((kernel.program.int_ptr, name))
    return None if unit is None else (unit, name.removesuffix(unit._ending))


def known_origin(kernel: cl.Kernel) -> tuple[TranslationUnit, str]:
    """Return a kernel's unit and its name in the unit's code, like `origin`, for a kernel that a unit has built."""
    found = origin(kernel)
    assert found is not None
    return found


def _build_jointly(context: Context, units: Sequence[TranslationUnit]) -> None:
    isolated = [
        (unit, isolated_code) for unit in units if len(units) > 1 and (isolated_code := unit.isolated()) is not None
    ]
    if len(isolated) > 1:
        _build_concurrently(context, _parts(isolated, context.profile.quirks.builds_side_by_side))
    for unit in units:
        if not unit.built:
            unit.build()


def _parts(isolated: Sequence[_Part], are_several: bool) -> list[list[_Part]]:
    """Divide units among the programs to build, so that the programs have similar lengths."""
    length = sum(len(code.code) for _, code in isolated)
    parts: list[list[_Part]] = [[] for _ in range(max(1, min(_MOST_PROGRAMS, length // _LEAST_TEXT)))]
    if not are_several or len(parts) == 1:
        return [list(isolated)]
    lengths = [0] * len(parts)
    # Sorting by length and text divides the units equally in every process, so that the disk cache has their programs.
    for pair in sorted(isolated, key=lambda pair: (-len(pair[1].code), pair[0].codes)):
        shortest = lengths.index(min(lengths))
        parts[shortest].append(pair)
        lengths[shortest] += len(pair[1].code)
    return [part for part in parts if part]


def _build_concurrently(context: Context, parts: Sequence[list[_Part]]) -> None:
    """Build one program for each part; the units of a part whose program does not compile remain unbuilt."""
    if len(parts) == 1:
        built = [_joint_program(context, parts[0])]
    else:
        with ThreadPoolExecutor(len(parts), "optdb-building") as threads:
            built = list(threads.map(functools.partial(_joint_program, context), parts))
    for part, program in zip(parts, built, strict=True):
        for number, (unit, _) in enumerate(part):
            if program is not None:
                unit.attach(program, _ending(number))


def _ending(number: int) -> str:
    return f"__{number}"


def _joint_program(context: Context, part: list[_Part]) -> cl.Program | None:
    # Sorting makes the source identical in every process, regardless of the order of a graph's nodes.
    part.sort(key=lambda pair: pair[0].codes)
    source = PRELUDE + "".join(code.between(_ending(number)) for number, (_, code) in enumerate(part))
    try:
        return make(context, source, name=f"a program of {len(part)} units")
    except BuildError as error:
        _logger.info("the units are built one by one instead: %s", error)
        return None
