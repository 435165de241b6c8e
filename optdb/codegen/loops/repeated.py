"""Kernels that repeat fused loops: a single CPU work item runs all steps, since a launch takes longer than a step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.kernels.isolation import isolate
from optdb.codegen.loops.body import Buffer
from optdb.codegen.loops.code import LoopCode
from optdb.codegen.loops.grids import LoopGrid
from optdb.codegen.loops.kernel import LoopKernel
from optdb.codegen.loops.sizes import packed_number, packed_params, stays_constant
from optdb.codegen.source import joined
from optdb.runtime.sizes import is_same


class NotRepeatable(Exception):
    """Raised if loops cannot be repeated within a kernel."""


@dataclass(eq=False)
class MovingRow:
    """A buffer of a loop's body that represents row ``(start + t) % length`` of an array in step ``t``."""

    buffer: Buffer
    array: Buffer
    #: The offset of row 0 in the array's buffer, and the distance between neighbouring rows, in elements.
    offset: int
    stride: int
    start: int
    length: int

    def at(self, step: int) -> int:
        """Return the offset, in elements, of the row that the buffer represents in step `step`."""
        return self.offset + (self.start + step) % self.length * self.stride


@dataclass(frozen=True)
class _Param:
    """An array parameter of a function: the function's buffer, the caller's buffer, and the first element's offset."""

    inner: Buffer
    outer: Buffer
    offset: int = 0


class RepeatedLoops:
    """A number of steps, each of which runs the same fused loops and repeated loops.

    `rows` describes the buffers that represent another row in each step. `parts` are the loops that a step runs in this
    order: pairs of a loop and its grid (of one item), or repeated loops. `arena`, if it is given, maps the buffers that
    share one array (the arena) to their offsets in bytes. It maps a buffer to None if the buffer begins at an offset in
    another array; buffers that are missing in the mapping begin at offset 0. Raise NotRepeatable if the code of the
    parts cannot be combined.
    """

    def __init__(
        self,
        steps: int,
        rows: Sequence[MovingRow],
        parts: Sequence[tuple[LoopKernel, LoopGrid] | RepeatedLoops],
        arena: Mapping[Buffer, int | None] | None = None,
    ) -> None:
        self.steps = steps
        self._parts = parts
        self._rows = {row.buffer: row for row in rows}
        self._params: dict[Buffer, _Param] = {}
        self.flags: dict[str, None] = {}
        #: The number of steps, followed by all numbers that the parts take as arguments.
        self._numbers = [steps]
        #: Maps numbers of the rows to their positions among all numbers.
        self._positions: dict[int, int] = {}
        #: Maps the code of each function to the function's name.
        codes: dict[str, str] = {}
        calls: list[str] = []
        for number, part in enumerate(parts):
            if isinstance(part, RepeatedLoops):
                code, flags, params = part.function, tuple(part.flags), list(part._params.values())
                numbers, name = part._numbers, "repeated"
            else:
                loop, grid = part
                written = LoopCode(loop, is_function=True)
                code, flags = written.source, written.flags
                params = [_Param(buffer, buffer) for buffer in written.buffers]
                numbers, name = written.numbers(grid), "loop"
            name = codes.setdefault(code, f"{name}_{number}")
            self.flags |= dict.fromkeys(flags)
            first = len(self._numbers)
            self._numbers += numbers
            arguments = [f"n{n}" for n in range(first, len(self._numbers))]
            arguments += map(self._argument, params)
            calls.append(f"{name}({', '.join(arguments)});")
        self._functions = joined(_renamed(code, f"_{name.rpartition('_')[2]}") for code, name in codes.items())
        self._calls = calls
        rings = [(n, self._rows[buffer]) for n, buffer in enumerate(self._params) if self._wraps(buffer)]
        #: Statements before the loop, and at the end of each step, that count the rows of arrays whose rows wrap
        #: around.
        self._first_rows = [f"ga_size row{n} = (ga_size){self._text(row.start % row.length)};" for n, row in rings]
        self._next_rows = [f"if (++row{n} == (ga_size){self._text(row.length)}) row{n} = 0;" for n, row in rings]
        self._arena = arena
        #: Maps the position of each parameter whose array is in the arena to the array's offset in bytes.
        self._placed: dict[int, int] = {}
        for n, param in enumerate(self._params.values()):
            offset = (arena or {}).get(param.outer)
            if offset is not None:
                self._placed[n] = offset + param.offset * np.dtype(param.outer.dtype).itemsize

    def __str__(self) -> str:
        parts = "; ".join(str(part[0]) if isinstance(part, tuple) else str(part) for part in self._parts)
        return parts if is_same(self.steps, 1) else f"{self.steps} steps of a loop in one kernel, each: {parts}"

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that the loops use."""
        return [param.outer for param in self._params.values()]

    @property
    def uses_arena(self) -> bool:
        """Whether the arena is the kernel's first array argument."""
        return bool(self._placed)

    @property
    def numbers(self) -> list[int]:
        """The numbers that the kernel takes, packed, before its arrays."""
        return [*self._numbers, *self._placed.values()]

    @property
    def arrays(self) -> list[tuple[Buffer, int]]:
        """The array arguments that follow the numbers and the arena, each with its offset in elements."""
        return [(param.outer, param.offset) for n, param in enumerate(self._params.values()) if n not in self._placed]

    def kernel(self) -> Kernel:
        """Return the kernel, which must be launched with one work item."""
        count = len(self._numbers)
        params = packed_params(count + len(self._placed))
        begin = [f"const ga_size n{n} = (ga_size){packed_number(n)};" for n in range(count)]
        if self.uses_arena:
            params.append("GLOBAL_MEM ga_ubyte *arena")
        for n, param in enumerate(self._params.values()):
            kind = ctype(param.outer.dtype)
            if n not in self._placed:
                begins_at_0 = self._arena is not None and param.outer not in self._arena and not param.offset
                params.append(f"{'GLOBAL_MEM' if begins_at_0 else 'ARRAY'} {kind} *a{n}_at")
                continue
            first = f"(GLOBAL_MEM {kind} *)(arena + {packed_number(count)})"
            begin.append(f"GLOBAL_MEM {kind} *a{n}_at = {first};")
            count += 1
        (kernel,) = Kernel.all_of(self._code("OUTLINED_KERNEL", params, begin), tuple(self.flags))
        return kernel

    @property
    def function(self) -> str:
        """The code of the repeated loops, as a function."""
        params = [f"ga_size n{n}" for n in range(len(self._numbers))]
        params += [f"GLOBAL_MEM {ctype(buffer.dtype)} *a{n}_at" for n, buffer in enumerate(self._params)]
        return self._code("static", params)

    def _code(self, kind: str, params: Sequence[str], begin: Sequence[str] = ()) -> str:
        return joined(
            [
                self._functions,
                f"{kind} void repeated({', '.join(params)})",
                "{",
                *begin,
                *self._first_rows,
                "for (ga_size t = 0; t < n0; ++t) {",
                *self._calls,
                *self._next_rows,
                "}",
                "}\n",
            ]
        )

    def _wraps(self, buffer: Buffer) -> bool:
        row = self._rows.get(buffer)
        return row is not None and row.start % row.length + self.steps > row.length

    def _argument(self, param: _Param) -> str:
        buffer = param.outer
        row = self._rows.get(buffer)
        if buffer not in self._params:
            first = 0 if row is None else row.offset if self._wraps(buffer) else row.at(0)
            self._params[buffer] = _Param(buffer, buffer if row is None else row.array, first)
        number = list(self._params).index(buffer)
        terms = [f"a{number}_at"]
        if row is not None and row.stride:
            terms.append(f"(ga_ssize){f'row{number}' if self._wraps(buffer) else 't'} * {self._text(row.stride)}")
        if param.offset:
            terms.append(self._text(param.offset))
        return " + ".join(terms)

    def _text(self, number: int) -> str:
        """Return the code for a number: a constant if the number is small, or else one of the kernel's numbers."""
        if stays_constant(number):
            return f"{number}L"
        if number not in self._positions:
            self._positions[number] = len(self._numbers)
            self._numbers.append(number)
        return f"(ga_ssize)n{self._positions[number]}"


def _renamed(code: str, ending: str) -> str:
    isolated = isolate(code)
    if isolated is None:
        raise NotRepeatable("the code of a loop cannot be parsed")
    names = isolated.names | isolated.macros
    return re.sub(rf"(?<![\w.])(?:{'|'.join(map(re.escape, sorted(names)))})\b", lambda name: name[0] + ending, code)
