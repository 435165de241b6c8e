"""Builds kernels: all that a function needs in one program.

:func:`compile_kernels` makes a :class:`TranslationUnit` of the codes of a node's kernels, one for all nodes whose codes
are the same. Within `one_program` units only gather; they are built at its end, as few programs, because each build has
a price of its own: on PoCL, twenty kernels take 3.1 s in twenty programs, and 0.13 s in one. Elsewhere a unit is built
at once. Where the whole is refused, units are built one by one, so that an error shows the code that is wrong.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakValueDictionary

from optdb.codegen.kernels.isolation import Isolated, isolate
from optdb.codegen.kernels.kernel import Kernel
from optdb.codegen.kernels.launching import CompiledKernel
from optdb.codegen.kernels.outlining import OutlinedKernel, outlined
from optdb.codegen.kernels.params import Param
from optdb.codegen.kernels.prelude import PRELUDE
from optdb.runtime.build import BuildError, make
from optdb.runtime.context import Context
from optdb.runtime.library import cl

_logger = logging.getLogger(__name__)

#: Held while programs are built, so that no unit is built by two threads.
_building = threading.RLock()
#: For each thread, the units that wait for the end of `one_program`; None outside of it.
_waiting = threading.local()
#: By the program and the kernel's name there: whose kernel it is. Units keep their programs.
_origins: WeakValueDictionary[tuple[int, str], TranslationUnit] = WeakValueDictionary()


class TranslationUnit:
    """The codes of some kernels, each of them once, which belong together, and what was built of them.

    The title says whose kernels they are, for errors.
    """

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
        """All codes."""
        return "\n".join(self.codes)

    @functools.cached_property
    def pieces(self) -> list[str | OutlinedKernel]:
        """The code as suits the driver, in pieces."""
        return outlined(self.code) if self.context.profile.quirks.compiles_body_repeatedly else [self.code]

    def outlines(self, name: str) -> bool:
        """Tell whether the body of a kernel is a function of its own."""
        return any(isinstance(piece, OutlinedKernel) and piece.name == name for piece in self.pieces)

    def launcher(self, kernel: Kernel) -> CompiledKernel:
        """Return what launches one of the kernels; the same one each time."""
        key = (kernel.name, kernel.params)
        if key not in self._kernels:
            launcher = CompiledKernel(kernel, self.context, lambda: build_units([self]))
            if self.built:
                self._attach(launcher)
            self._kernels[key] = launcher
        return self._kernels[key]

    def isolated(self) -> Isolated | None:
        """Return the code ready to stand among others; None if it has to be on its own."""
        found = isolate("".join(map(str, self.pieces)))
        if found is None or not all(name in found.names for name, _ in self._kernels):
            return None
        return found

    def attach(self, program: cl.Program, ending: str = "") -> None:
        """Take the kernels from a program, in which their names have an ending; raise what their `attach` does."""
        self._program, self._ending = program, ending
        for launcher in self._kernels.values():
            self._attach(launcher)
        self.built = True

    def _attach(self, launcher: CompiledKernel) -> None:
        name = launcher.name + self._ending
        launcher.attach(self._program, name)
        _origins[self._program.int_ptr, name] = self

    def build(self) -> None:
        """Build a program of this unit alone; raise BuildError if it is refused, and what `attach` raises."""
        if len(self.pieces) > 1:
            try:
                self.attach(make(self.context, PRELUDE + "".join(map(str, self.pieces)), name=self.title))
                return
            except BuildError as error:
                _logger.info("it will be built as it is: %s", error)
        self.attach(make(self.context, PRELUDE + self.code, name=self.title, own_lines=PRELUDE.count("\n")))


def compile_kernels(kernels: Iterable[Kernel], context: Context, name: str = "a kernel") -> dict[str, CompiledKernel]:
    """Build kernels as one program; return them by name.

    Within `one_program`, what is wrong with their code is told at its end.

    Parameters
    ----------
    kernels : iterable of Kernel
        With different names.
    context : Context
        Where they are to run.
    name : str
        Whose kernels they are, for errors.

    Raises
    ------
    UnsupportedKernel
        If the device lacks what they need.
    BuildError
        If they do not compile.
    """
    kernels = list(kernels)
    names = [kernel.name for kernel in kernels]
    if len(set(names)) < len(names):
        raise ValueError(f"{name} has two kernels of one name among {names}")
    for kernel in kernels:
        kernel.require(context)
    codes = tuple(dict.fromkeys(kernel.code for kernel in kernels))
    units = context.kept.setdefault(__name__, {})
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


@contextmanager
def one_program() -> Iterator[None]:
    """Build what is compiled meanwhile, by this thread, at the end, as one program for each context.

    What `TranslationUnit.build` raises is raised at the end.
    """
    if getattr(_waiting, "units", None) is not None:
        yield  # a function inside of another one, such as Scan's: the outer one builds
        return
    _waiting.units = units = {}
    try:
        yield
    finally:
        _waiting.units = None
    build_units(units)


def build_units(units: Iterable[TranslationUnit]) -> None:
    """Build units that have not been built, those of one context as one program."""
    with _building:
        of_context: dict[Context, list[TranslationUnit]] = {}
        for unit in units:
            if not unit.built:
                of_context.setdefault(unit.context, []).append(unit)
        for context, together in of_context.items():
            try:
                _build_together(context, together)
            finally:
                for unit in together:
                    if not unit.built:
                        # The next who asks for these kernels hears what is wrong, too.
                        context.kept[__name__].pop(unit.codes, None)


def origin(kernel: cl.Kernel) -> tuple[TranslationUnit, str] | None:
    """Return the unit that a kernel is of, and its name in the unit's code; None if it was built otherwise."""
    name = kernel.function_name
    unit = _origins.get((kernel.program.int_ptr, name))
    return None if unit is None else (unit, name.removesuffix(unit._ending))


def _build_together(context: Context, units: Sequence[TranslationUnit]) -> None:
    isolated = [(unit, found) for unit in units if len(units) > 1 and (found := unit.isolated()) is not None]
    if len(isolated) > 1:
        _build_joint(context, isolated)
    for unit in units:
        if not unit.built:
            unit.build()


def _build_joint(context: Context, isolated: list[tuple[TranslationUnit, Isolated]]) -> None:
    """Build one program of several units; leave them as they are if it is refused."""
    # In this order, the source is the same in each process, whatever the order of a graph's nodes.
    isolated.sort(key=lambda pair: pair[0].codes)
    endings = [f"__{number}" for number in range(len(isolated))]
    source = PRELUDE + "".join(found.between(ending) for (_, found), ending in zip(isolated, endings))
    try:
        program = make(context, source, name=f"a program of {len(isolated)} units")
    except BuildError as error:
        _logger.info("they will be built one by one: %s", error)
        return
    for (unit, _), ending in zip(isolated, endings):
        unit.attach(program, ending)
