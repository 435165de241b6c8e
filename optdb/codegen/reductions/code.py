"""Code for reductions: kernels that compute elements with a program, and fold these elements.

The ``along`` kernels fold neighbouring elements into the same output, and the ``across`` kernels fold them into
neighbouring outputs. A CPU folds vectors; on other devices, a team of work items folds each output in local memory. If
many elements are folded into one output, they are folded in parts, and the kernels of another `ReductionCode` fold the
partial results. An `Epilogue` is applied to each result. A program may compute several values per element, which are
folded in one pass; the accumulator is then a struct.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elementwise import QUAD, WIDTH, Operand
from optdb.codegen.kernels import Kernel
from optdb.codegen.reductions.folds import identity_of
from optdb.codegen.scalars.code import ScalarCode, scalar_code
from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.codegen.scalars.types import c_type, convert
from optdb.codegen.source import ROUND_EACH_STEP, add_offsets, body, filled, functions, joined, row_offsets

#: Number of neighbouring outputs that a CPU work item folds.
STRIP = 1024
#: Number of rows that are folded at a time, so that a strip of outputs is loaded and stored less often.
ROWS = 4
#: Number of independent accumulators of each work item; several accumulators hide latency. `SEVERAL_OF_ALL` is for
#: compensated sums of all elements, `SEVERAL_OF_EACH` for passes that compute several sums.
SEVERAL, SEVERAL_OF_ALL, SEVERAL_OF_EACH = 8, 16, 4


@dataclass(frozen=True)
class Epilogue:
    """A computation that is fused into a reduction: kernels apply it to each result, and store its outputs."""

    #: Computes the outputs; its inputs are the results, followed by elements of other arrays.
    program: ScalarProgram
    #: For each array that the program reads besides the results, whether the array has only one element.
    single: tuple[bool, ...]
    results: int = 1

    @property
    def inputs(self) -> list[Operand]:
        """The arrays that the program reads besides the results."""
        return [
            Operand.of(f"p{i}", *pair)
            for i, pair in enumerate(zip(self.program.dtypes[self.results :], self.single, strict=True))
        ]

    @property
    def outputs(self) -> list[Operand]:
        """The arrays to which outputs are written; partial results are written to the first array."""
        return [Operand.of(f"z{i}", dtype) for i, dtype in enumerate(self.program.out_dtypes)]

    @property
    def operands(self) -> list[Operand]:
        return [*self.inputs, *self.outputs]

    @property
    def stepping(self) -> list[Operand]:
        """The arrays of the epilogue that have one element for each result."""
        return [x for x in self.operands if not x.single]


@dataclass(frozen=True)
class ReductionCode:
    """The arrays, programs and dtypes of a reduction, from which its kernels are generated."""

    fold: str
    pre: ScalarProgram
    #: For each array, `single` says whether it has one element, and `fixed` whether it has one element per result;
    #: vector code does not support `fixed` arrays.
    single: tuple[bool, ...]
    fixed: tuple[bool, ...]
    acc_dtype: str
    post: Epilogue
    #: Numbers of kept and of reduced axes; each is at least 1.
    kept: int
    folded: int
    #: Whether the code uses explicit vectors, which do not support complex numbers.
    vectors: bool
    #: Maximum number of work items in a team, if the code uses no vectors.
    group: int
    quads: bool = False
    #: Whether float32 sums are accumulated in float32, with compensation, to get a float64 total.
    compensated: bool = False
    several: int = SEVERAL
    wrong_functions: frozenset[str] = frozenset()
    name: str = "fold"

    @functools.cached_property
    def _inputs(self) -> list[Operand]:
        return [Operand.of(f"i{i}", *pair) for i, pair in enumerate(zip(self.pre.dtypes, self.single, strict=True))]

    @functools.cached_property
    def _many(self) -> list[Operand]:
        return [x for x, fixed in zip(self._inputs, self.fixed, strict=True) if not (x.single or fixed)]

    @functools.cached_property
    def _fixed(self) -> list[Operand]:
        return [x for x, fixed in zip(self._inputs, self.fixed, strict=True) if fixed]

    @property
    def _width(self) -> int:
        return WIDTH if self.vectors else 1

    @functools.cached_property
    def _count(self) -> int:
        return len(self.pre.out_dtypes)

    @property
    def _acc(self) -> str:
        return c_type(self.acc_dtype) if self._count == 1 else f"{self.name}_acc"

    def _each(self, name: str) -> list[str]:
        """Return the names of the prologue's values, which are `name` (for a single value) or `name` and a number."""
        return [name] if self._count == 1 else [f"{name}{i}" for i in range(self._count)]

    def _members(self, accumulator: str) -> list[str]:
        return [accumulator] if self._count == 1 else self._each(f"{accumulator}.of")

    def _accumulator(self, values: Sequence[str]) -> str:
        return values[0] if self._count == 1 else f"({self._acc}){{{', '.join(values)}}}"

    def kernels(self) -> list[Kernel]:
        """Return the kernels; they share one source."""
        helpers = Helpers(self.name)
        inputs, uniform = [x.name for x in self._inputs], [x.name for x in self._inputs if x not in self._many]
        elements = self._each("element")
        pre = scalar_code(self.pre, inputs, elements, uniform, self._width, helpers, self.wrong_functions)
        post_names = [*self._each("result"), *[x.name for x in self.post.inputs]], [x.name for x in self.post.outputs]
        post = scalar_code(self.post.program, *post_names, helpers=helpers)
        words = {
            **self._fold_words(helpers),
            "PARAMS": self._params(),
            **self._element_words(pre),
            "STORE": self._store(post.statements),
            **self._offsets(),
            **{name: f"{self.name}_{name}" for name in ("combine", "combine_vectors", "add")},
            **{f"vectors_{way}": f"{self.name}_{way}" for way in ("along", "across")},
        }
        code = functions("reductions/reductions.cl")
        if self.vectors:
            readers = dict.fromkeys(x.lane_reader(self.name) for x in self._many)
            names = ["combine", "combine_vectors", "vectors_along", "vectors_across"]
            text = "".join([code[name] for name in names])
            inlined = {name.upper(): body(code[name]) for name in ("whole_vector", "fold_lanes")}
            text = filled(filled(text, **inlined), **words)
        else:
            readers = {}
            text = filled(self._items(code), **words, **self._steps())
        flags = Kernel.get_flags(*sorted({*pre.dtypes, *post.dtypes, self.acc_dtype}))
        return Kernel.all_of("".join([ROUND_EACH_STEP, helpers.source, self._struct(), *readers, text]), flags)

    def _struct(self) -> str:
        if self._count == 1:
            return ""
        members = joined(f"{c_type(self.acc_dtype)} {member};" for member in self._each("of"))
        return f"typedef struct {{\n{members}\n}} {self._acc};\n"

    def _fold_words(self, helpers: Helpers) -> dict[str, Any]:
        combine = ScalarProgram.of(Scalar(self.fold, self.acc_dtype), [self.acc_dtype] * 2)

        def combining(width: int) -> str:
            pairs = zip(self._members("acc"), self._members("x"), strict=True)
            codes = [scalar_code(combine, pair, pair[:1], width=width, helpers=helpers) for pair in pairs]
            # The code of each value gets a block of its own, because all use the same names for intermediate values.
            blocks = [code.statements if self._count == 1 else f"{{\n{code.statements}\n}}" for code in codes]
            return joined(blocks)

        return {
            **{"ACC": self._acc, "VECTOR": f"{self._acc}{WIDTH}"},
            "IDENTITY": self._accumulator([identity_of(self.fold, self.acc_dtype)] * self._count),
            **{"WIDTH": WIDTH, "VLOAD": f"vload{WIDTH}", "VSTORE": f"vstore{WIDTH}"},
            **{"STRIP": STRIP, "ROWS": ROWS, "GROUP": self.group},
            **{"COMBINE": combining(1), "COMBINE_VECTORS": combining(self._width)},
        }

    def _element_words(self, pre: ScalarCode) -> dict[str, str]:
        elements = list(zip(self._each("element"), self.pre.out_dtypes, strict=True))
        lanes = WIDTH if self.vectors else ""
        converted = [convert(name, dtype, self.acc_dtype, self._width) for name, dtype in elements]
        declared = joined(f"{c_type(dtype)}{lanes} {name};" for name, dtype in elements)
        reads = [x.read("0") for x in self._inputs if x.single] + [x.read(f"{x.name}_index") for x in self._fixed]
        return {
            "ONCE": joined([*reads, pre.once]),
            "PRE": f"{declared}\n{pre.statements}\n{self._acc}{lanes} x = {self._accumulator(converted)};",
        }

    def _items(self, code: Mapping[str, str]) -> str:
        def kernel(name: str, quads: bool = False) -> str:
            called = f"{self.name}_{name}{'_quads' if quads else ''}"
            fold = filled(body(code["fold"]), **self._taking(quads), RESTART=restart)
            return filled(code[f"items_{name}"], **{f"items_{name}": called}, FOLD=fold)

        finite = " && ".join(f"isfinite({member})" for member in self._members("acc"))
        restart = filled(body(code["restart"]), FINITE=finite) if self.compensated else ""
        kernels = [kernel("along"), kernel("across"), *([kernel("along", quads=True)] if self.quads else [])]
        helpers = [code["combine"], *([filled(code["add"], NARROW="float")] if self.compensated else [])]
        return "".join([*helpers, *kernels])

    def _taking(self, quads: bool) -> dict[str, Any]:
        at = f"u * {QUAD} + l" if quads else "u"
        if quads:
            reads = joined(x.read_quad(f"{x.name}_p", f"{x.name}_r{self.folded - 1}") for x in self._many)
            lanes = joined(f"const {x.computed} {x.name} = {x.load}({x.name}_quad.s[l]);" for x in self._many)
        into_one = "acc = combine(acc, x);"
        into_several = f"several[{at}] = combine(several[{at}], x);"
        ends = "several[u]"
        if self.compensated:
            names = list(zip(*map(self._each, ("several", "lost", "element")), strict=True))
            into_several = joined(f"add(&{sum_}[{at}], &{lost}[{at}], {x});" for sum_, lost, x in names)
            acc = c_type(self.acc_dtype)
            ends = self._accumulator([f"({acc}){sum_}[u] + ({acc}){lost}[u]" for sum_, lost, _ in names])

        def take(into: str) -> str:
            if not quads:
                return f"READ\nPRE\n{into}"
            return f"{reads}\n#pragma unroll\nfor (int l = 0; l < {QUAD}; ++l) {{\n{lanes}\nPRE\n{into}\n}}"

        return {
            "SEVERAL": self.several,
            "UNROLL": self.several // QUAD if quads else self.several,
            "SEVERAL_BEGIN": self._several_begin(),
            "TAKE_SEVERAL": take(into_several),
            "SEVERAL_END": ends,
            "TAKE_ONE": take(into_one),
        }

    def _several_begin(self) -> str:
        count = self.several
        if self.compensated:
            names = zip(self._each("several"), self._each("lost"), strict=True)
            return joined(f"float {sum_}[{count}] = {{0}}, {lost}[{count}] = {{0}};" for sum_, lost in names)
        loop = f"#pragma unroll\nfor (int u = 0; u < {count}; ++u)\nseveral[u] = IDENTITY;"
        return f"ACC several[{count}];\n{loop}"

    def _steps(self) -> dict[str, str]:
        """Return statements that locate the element at an index, and statements that move on by a number of elements.

        ``c<d>`` is the index along axis d, and ``s<d>`` is the number of indices by which a step moves along axis d.
        For each array x, ``x_s`` is the offset of a step, and ``x_w<d>`` the offset to add when the index along axis d
        wraps around.
        """
        inner = range(self.folded - 1, 0, -1)

        def digits(of: str, name: str) -> list[str]:
            return [f"ga_size at = {of};", *[f"{name}{d} = (uint)(at % r{d});\nat /= r{d};" for d in inner]]

        def offset(x: Operand, name: str) -> str:
            indexes = {0: "at", **{d: f"{name}{d}" for d in inner}}
            return " + ".join(f"(ga_ssize){index} * {x.name}_r{d}" for d, index in indexes.items())

        declared = [f"uint c{d}, s{d};\nconst uint len{d} = (uint)r{d};" for d in inner]
        declared += [f"ga_ssize {x.name}_p, {x.name}_s;" for x in self._many]
        declared += [
            f"const ga_ssize {x.name}_w{d} = {x.name}_r{d - 1} - (ga_ssize)r{d} * {x.name}_r{d};"
            for x in self._many
            for d in inner
        ]
        steps = ["{", *digits("step", "s"), *[f"{x.name}_s = {offset(x, 's')};" for x in self._many], "}"]
        locate = [
            "{",
            *digits("first", "c"),
            *[f"{x.name}_p = {x.name}_base + {offset(x, 'c')};" for x in self._many],
            "}",
        ]
        following = [f"{x.name}_p += {x.name}_s;" for x in self._many]
        for d in inner:
            wrap = [f"c{d} -= len{d};", *[f"{x.name}_p += {x.name}_w{d};" for x in self._many]]
            wrap += [f"++c{d - 1};"] if d > 1 else []
            following.append(joined([f"c{d} += s{d};\nif (c{d} >= len{d}) {{", *wrap, "}"]))
        return {"DIGITS": joined([*declared, *steps]), "LOCATE": joined(locate), "NEXT": joined(following)}

    def _params(self) -> str:
        kept_axes, folded_axes = [f"k{d}" for d in range(self.kept)], [f"r{d}" for d in range(self.folded)]
        numbers = [f"ga_size {name}" for name in ("n", "each", "m", "parts", "part", *kept_axes, *folded_axes)]
        steps = [f"ga_ssize {x.name}_{axis}" for x in self._many for axis in (*kept_axes, *folded_axes)]
        steps += [f"ga_ssize {x.name}_{axis}" for x in self._fixed for axis in kept_axes]
        post_steps = [f"ga_ssize {x.name}_{axis}" for x in self.post.stepping for axis in kept_axes]
        post = [*[x.param for x in self.post.operands], "ga_ssize z_part", *post_steps]
        return ", ".join([*numbers, *[x.param for x in self._inputs], *steps, *post])

    def _offsets(self) -> dict[str, str]:
        side, row = f"k{self.kept - 1}", f"r{self.folded - 1}"
        begins = {f"{x.name}_base": f"{x.name}_k" for x in self._many}
        begins |= {f"{x.name}_index": f"{x.name}_k" for x in (*self._fixed, *self.post.stepping)}
        outputs = joined(["ga_size rest = o;", *[f"ga_ssize {offset} = 0;" for offset in begins]])
        strip = joined(f"{offset} += (ga_ssize)from * {step}{self.kept - 1};" for offset, step in begins.items())
        offsets = {f"{x.name}_p": (f"{x.name}_base", f"{x.name}_r") for x in self._many}

        def lanes(offset: str, axis: str) -> str:
            return joined(
                f"const {x.computed}{WIDTH} {x.name} = "
                f"{x.reader(self.name)}({x.name}_at + {offset.format(x.name)}, {x.name}_{axis}, count);"
                for x in self._many
            )

        return {
            "SIDE": side,
            "ROW": row,
            "OFFSETS_OF_OUTPUT": joined([outputs, add_offsets("rest", "k", self.kept, begins)]),
            "OFFSETS_OF_STRIP": joined([outputs, add_offsets("rest", "k", self.kept - 1, begins), strip]),
            "OFFSETS_IN_ROW": row_offsets("r", self.folded, offsets),
            "READ": joined(x.read(f"{x.name}_p") for x in self._many),
            "READ_ALONG": lanes("{0}_p", row),
            "READ_ACROSS": lanes(f"{{0}}_p + c * {{0}}_{side} + r * {{0}}_{row}", side),
            "NEXT_IN_ROW": joined(f"{x.name}_p += {WIDTH} * {x.name}_{row};" for x in self._many),
            "NEXT_ROWS": joined(f"{x.name}_p += {ROWS} * {x.name}_{row};" for x in self._many),
            "NEXT_OUTPUT": joined(f"{x.name}_index += {x.name}_{side};" for x in self.post.stepping),
        }

    def _store(self, statements: str) -> str:
        """Return statements that store the epilogue's outputs, or a partial result in the accumulator's dtype."""
        post, first, acc = self.post, self.post.outputs[0].name, c_type(self.acc_dtype)
        values = self._members("value")
        results = zip(self._each("result"), values, post.program.dtypes[: post.results], strict=True)
        lines = [
            *[
                f"const {c_type(dtype)} {name} = {convert(value, self.acc_dtype, dtype)};"
                for name, value, dtype in results
            ],
            *[x.read("0" if x.single else f"{x.name}_index") for x in post.inputs],
            *[x.declare() for x in post.outputs],
            statements,
            *[x.write(f"{x.name}_index") for x in post.outputs],
        ]
        # All parts of the first result come first, then all parts of the second result, and so on.
        places = ["mine", *[f"({i} * parts + mine)" for i in range(1, self._count)]]
        parts = [
            f"((GLOBAL_MEM {acc} *){first}_at)[{first}_index + (ga_ssize){place} * z_part] = {value};"
            for place, value in zip(places, values, strict=True)
        ]
        return f"if (parts == 1) {{\n{joined(lines)}\n}} else {{\n{joined(parts)}\n}}"
