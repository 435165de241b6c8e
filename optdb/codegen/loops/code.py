"""The code of loop kernels: for each point, it loads inputs, runs a scalar program and processes the results."""

from __future__ import annotations

from collections.abc import Sequence

from optdb.codegen.elementwise import QUAD, WIDTH, Operand
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.loops.body import Buffer, LengthValue, Load, LoopIndex, RowProduct
from optdb.codegen.loops.grids import LoopGrid
from optdb.codegen.loops.kernel import LoopKernel
from optdb.codegen.loops.sizes import SizeArguments, packed_number, packed_params
from optdb.codegen.loops.targets import (
    ColumnSum,
    ElementStore,
    Fold,
    Scatter,
    ScatterStore,
    Target,
    atomic_addition,
    results_of,
)
from optdb.codegen.reductions.folds import identity_of
from optdb.codegen.scalars.code import RowInputs, scalar_code
from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.codegen.scalars.types import c_type
from optdb.codegen.source import ROUND_EACH_STEP, body, filled, functions, joined, write_w
from optdb.runtime.sizes import as_int, is_same, largest

_CODE = functions("loops/loops.cl")


class LoopCode:
    """The code of a loop kernel, or of a function for CPUs that does the work of the kernel's first item.

    If `is_function` is true, the code is a function, whose parameters for numbers are not packed. `buffers` are the
    arrays that the code takes, in order.
    """

    def __init__(self, kernel: LoopKernel, is_function: bool = False) -> None:
        self.loop = kernel
        self.sizes = SizeArguments(kernel.is_narrow)
        self.buffers: list[Buffer] = []
        self._is_function = is_function
        self.source, self.flags = self._written()

    def kernel(self) -> Kernel:
        """Return the kernel, whose arguments are the packed `numbers` and the buffers."""
        (kernel,) = Kernel.all_of(self.source, self.flags)
        return kernel

    def numbers(self, grid: LoopGrid) -> list[int]:
        """Return the values of the code's integer parameters: points, points per chunk, parts, and then `sizes`."""
        return [largest(self.loop.points, 1), grid.chunk, grid.parts, *self.sizes.values]

    def _written(self) -> tuple[str, tuple[str, ...]]:
        helpers = Helpers("loop")
        names = [f"i{number}" for number in range(len(self.loop.body.sources))]
        outputs = [f"r{number}" for number in range(len(self.loop.program.results))]
        uniform = [name for name, source in zip(names, self.loop.body.sources) if self.loop.is_uniform(source)]
        wrong_functions = self.loop.profile.quirks.wrong_vector_functions
        program = self._with_size_arguments(self.loop.program)
        rows = self._row_inputs(names)
        code = scalar_code(program, names, outputs, uniform, self.loop.width, helpers, wrong_functions, rows)
        once = [*self._uniform_loads(names), code.once]
        declared = [f"{self._type(dtype)} {name};" for name, dtype in zip(outputs, self.loop.program.out_dtypes)]
        aliases = [
            f"const GLOBAL_MEM {ctype(buffer.dtype)} *table{number}_at = {self.name_of(buffer)}_at;"
            for number, buffer in enumerate(self.loop.body.tables)
        ]
        target_code = TargetCode(self)
        computed = [*declared, code.statements, *target_code.body]
        if self.loop.in_quads:
            points = self._quads(names, computed)
        else:
            count = f"(int)min((ga_size){self.loop.width}, stop - i)" if self.loop.is_serial else "1"
            points = [f"const int count = {count};", *self._loads(names), *computed]
        functions_used = dict.fromkeys([*self._functions(names), *target_code.functions])
        words = {
            **(self._chunk_words(names) if self.loop.is_serial else self._item_words()),
            "OFFSETS": joined([*self._offsets(names), *self._row_loads(names), code.by_row]),
            "FINISH": joined(target_code.finish),
        }
        item = "GID_0" if not self.loop.is_serial else "0" if self._is_function else "get_global_id(0)"
        params, given = self._params()
        words |= {
            "PARAMS": ", ".join(params),
            "ONCE": joined([*given, f"const ga_size item = {item};", *aliases, *once, *target_code.begin]),
            "POINTS": joined(points),
        }
        template = functions("elementwise.cl")["chunked"] if self.loop.is_serial else _CODE["loop"]
        source = "".join([ROUND_EACH_STEP, helpers.source, *functions_used, filled(template, **words)])
        return source, Kernel.get_flags(*sorted({*code.dtypes, *(b.dtype for b in self.buffers)}))

    def _row_inputs(self, names: Sequence[str]) -> RowInputs:
        """Return what is known about the sources along a row."""
        sources = dict(zip(names, self.loop.body.sources))
        constant = [name for name, source in sources.items() if self.loop.is_constant_in_rows(source)]
        if self.loop.width == 1:
            return RowInputs(constant)
        indices = {name: source.index for name, source in sources.items() if isinstance(source, LoopIndex)}
        neighbours = (name for name, index in indices.items() if is_same(self.loop.factors(index)[-1], 1))
        counting = {name: f"{name}_p" for name in neighbours}

        def read(dtype: str, address: str) -> str:
            return f"{Operand.of('t', dtype).reader('loop')}({address}, 1, count)"

        return RowInputs(constant, counting, read)

    def _row_loads(self, names: Sequence[str]) -> list[str]:
        """Return the statements that load the values that are constant in a row."""
        lines = []
        for name, source in zip(names, self.loop.body.sources):
            if not self.loop.is_constant_in_rows(source):
                continue
            if isinstance(source, LoopIndex):
                lines.append(f"const long {name} = {name}_p;")
            elif isinstance(source, Load):
                operand, array = Operand.of(name, source.buffer.dtype), self.name_of(source.buffer)
                lines.append(f"const {operand.computed} {name} = {operand.load}({array}_at[{name}_p]);")
        return lines

    def _item_words(self) -> dict[str, str]:
        """Return the placeholders of a kernel whose items process points with a grid stride."""
        folded = dict.fromkeys(c_type(target.parts.dtype) for target in self.loop.targets if isinstance(target, Fold))
        shared = joined(f"LOCAL_MEM {kind} shared_{kind}[{self.loop.group}];" for kind in folded)
        return {"SHARED": shared, "n": f"(ga_size){packed_number(0)}", "EACH": str(QUAD if self.loop.in_quads else 1)}

    def _chunk_words(self, names: Sequence[str]) -> dict[str, str]:
        """Return the placeholders of a kernel whose items process chunks of points, row by row."""
        points = "n" if self._is_function else f"(ga_size){packed_number(0)}"
        row = f"(ga_size){self.sizes.text(self.loop.domain[-1])}" if len(self.loop.domain) > 1 else points
        words = {
            "chunked": "loop",
            "WIDTH": str(self.loop.width),
            "STOP": f"min(end, i + ({row} - column))",
            "NEXT": joined(self._advances(names)),
        }
        if self._is_function:
            return words | {"OUTLINED_KERNEL": "static", "get_global_id": "(ga_size)"}
        return words | {"n": points, "chunk": f"(ga_size){packed_number(1)}"}

    def _params(self) -> tuple[list[str], list[str]]:
        """Return the parameters, and the statements that unpack numbers; call this after all other code is written."""
        kind, sizes = "GLOBAL_MEM" if self._is_function else "ARRAY", self.sizes.names
        arrays = [f"{kind} {ctype(buffer.dtype)} *{self.name_of(buffer)}_at" for buffer in self.buffers]
        if self._is_function:
            numbers = ["ga_size n", "ga_size chunk", "ga_size items", *(f"ga_ssize {name}" for name in sizes)]
            return [*numbers, *arrays], []
        given = [f"const ga_size items = (ga_size){packed_number(2)};"]
        given += [f"const ga_ssize {name} = {packed_number(3 + n)};" for n, name in enumerate(sizes)]
        return [*packed_params(3 + len(sizes)), *arrays], given

    def _with_size_arguments(self, program: ScalarProgram) -> ScalarProgram:
        """Return the program, in which the offsets of reads at computed indices are code instead of numbers."""
        if not self.loop.body.tables:
            return program

        def rewritten(scalar: Scalar) -> Scalar:
            if scalar.name != "Element":
                return scalar
            offset = self.sizes.text(as_int(scalar["offset"]))
            return Scalar(scalar.name, scalar.dtype, (("array", scalar["array"]), ("offset", offset)))

        steps = tuple((rewritten(scalar), operands) for scalar, operands in program.steps)
        return ScalarProgram(program.dtypes, steps, program.results)

    def name_of(self, buffer: Buffer) -> str:
        """Return a buffer's name in the code; a new buffer becomes a parameter."""
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return f"a{self.buffers.index(buffer)}"

    def _uniform_loads(self, names: Sequence[str]) -> list[str]:
        lines = []
        for name, source in zip(names, self.loop.body.sources):
            if isinstance(source, Load) and self.loop.is_uniform(source):
                operand = Operand.of(name, source.buffer.dtype)
                at = f"{self.name_of(source.buffer)}_at[{self.sizes.text(source.index.const)}]"
                lines.append(f"const {operand.computed} {name} = {operand.load}({at});")
            elif isinstance(source, LoopIndex) and self.loop.is_uniform(source):
                lines.append(f"const long {name} = {self.sizes.text(source.index.const)};")
            elif isinstance(source, LengthValue):
                lines.append(f"const {c_type(source.dtype)} {name} = {self.sizes.value(source.number)};")
        return lines

    def _offsets(self, names: Sequence[str]) -> list[str]:
        last = len(self.loop.domain) - 1
        if last < 0:
            return ["const ga_size column = 0;"]
        sizes, domain = self.sizes, self.loop.domain
        count, index = ("uint", "int") if sizes.is_narrow else ("ga_size", "ga_ssize")
        lines = [f"const {index} x{last} = ({index})i;"]
        if last:
            lines = [f"{count} row = {sizes.quotient('i', domain[-1])};"]
            lines.append(f"const {index} x{last} = ({index})i - ({index})row * {sizes.index(domain[-1])};")
            for axis in reversed(range(1, last)):
                lines.append(f"const {count} row{axis} = {sizes.quotient('row', domain[axis])};")
                lines.append(f"const {index} x{axis} = ({index})(row - row{axis} * {sizes.index(domain[axis])});")
                lines.append(f"row = row{axis};")
            lines.append(f"const {index} x0 = ({index})row;")
        lines.append(f"const ga_size column = (ga_size)x{last};")
        for name, offset in self.loop.strided_indices(names):
            terms = [f"{sizes.index(by)} * x{axis}" for axis, by in enumerate(self.loop.factors(offset)) if by]
            if offset.const or not terms:
                terms.insert(0, sizes.index(offset.const))
            lines.append(f"{index} {name}_p = {' + '.join(terms)};")
        return lines

    def _advances(self, names: Sequence[str]) -> list[str]:
        if not self.loop.domain:
            return []
        return [
            f"{name}_p += {self.loop.width} * {self.sizes.index(self.loop.factors(index)[-1])};"
            for name, index in self.loop.strided_indices(names)
            if self.loop.factors(index)[-1]
        ]

    def _loads(self, names: Sequence[str]) -> list[str]:
        lines = []
        for name, source in zip(names, self.loop.body.sources):
            if isinstance(source, LengthValue) or self.loop.is_uniform(source):
                continue
            if self.loop.is_constant_in_rows(source):
                continue
            if isinstance(source, RowProduct):
                lines += self._row_product(name, source)
                continue
            step = self.sizes.text(self.loop.factors(source.index)[-1])
            if isinstance(source, LoopIndex):
                # Lanes beyond the end of a row repeat the last one, because a table may be read at these indices.
                lanes = f"min((int{WIDTH})({', '.join(map(str, range(WIDTH)))}), (int{WIDTH})(count - 1))"
                vector = f"(long{WIDTH})({name}_p) + {step} * convert_long{WIDTH}({lanes})"
                value = vector if self.loop.width > 1 else f"{name}_p"
                lines.append(f"const {self._type('int64')} {name} = {value};")
                continue
            operand, array = Operand.of(name, source.buffer.dtype), self.name_of(source.buffer)
            if self.loop.width > 1:
                value = f"{operand.reader('loop')}({array}_at + {name}_p, {step}, count)"
            else:
                value = f"{operand.load}({array}_at[{name}_p])"
            lines.append(f"const {self._type(source.buffer.dtype)} {name} = {value};")
        return lines

    def _quads(self, names: Sequence[str], computed: Sequence[str]) -> list[str]:
        """Return the statements that compute four neighbours; at the end of the only row, there may be fewer."""
        is_last = len(self.loop.domain) == 1
        is_whole = f"count == {QUAD}" if is_last else "1"
        before, each = [], []
        for name, source in zip(names, self.loop.body.sources):
            if self.loop.is_uniform(source) or not isinstance(source, Load | LoopIndex):
                continue
            step = self.loop.factors(source.index)[-1]
            at = f"{name}_p + {self.sizes.index(step)} * lane" if step else f"{name}_p"
            if isinstance(source, LoopIndex):
                each.append(f"const long {name} = {at};")
                continue
            operand, array = Operand.of(name, source.buffer.dtype), f"{self.name_of(source.buffer)}_at"
            value = f"{array}[{at}]"
            if self.loop.is_quad(source.index):
                before.append(operand.read_quad(f"{name}_p", is_whole, f"{name}_p + min(l, count - 1)", array))
                value = f"{name}_quad.s[lane]"
            (each if step else before).append(f"const {operand.computed} {name} = {operand.load}({value});")
        stored = [(Operand.of(f"s{number}", x.buffer.dtype), x) for number, x in self.loop.stores()]
        before += [operand.declare_quad() for operand, _ in stored]
        written = [x.write_quad(f"{x.name}_p", is_last, f"{self.name_of(to.buffer)}_at") for x, to in stored]
        count = f"(int)min((ga_size){QUAD}, (ga_size){packed_number(0)} - i)" if is_last else f"{QUAD}"
        lanes = f"#pragma unroll\nfor (int lane = 0; lane < {QUAD}; ++lane) {'if (lane < count) ' * is_last}{{"
        return [f"const int count = {count};", *before, lanes, *each, *computed, "}", *written]

    def _type(self, dtype: str) -> str:
        return c_type(dtype) + (str(self.loop.width) if self.loop.width > 1 else "")

    def _row_product(self, name: str, source: RowProduct) -> list[str]:
        kind, text = c_type(source.matrix.dtype), self.sizes.text
        step = self.sizes.of_row(source.row_stride)
        row = f"{self.name_of(source.matrix)}_at + {text(source.offset)} + {step} * (ga_ssize)(i + l)"
        vector = f"{self.name_of(source.vector)}_at + {text(source.vector_offset)}"
        length = self.sizes.of_row(source.length)
        if self.loop.width == 1:
            call = f"row_product_{kind}({row.replace('(i + l)', 'i')}, {vector}, {length})"
            return [f"const {kind} {name} = {call};"]
        return [
            f"{self._type(source.matrix.dtype)} {name};",
            f"{{ union {{ {kind}{WIDTH} v; {kind} s[{WIDTH}]; }} rows; rows.v = ({kind}{WIDTH})(0);",
            "for (int l = 0; l < count; ++l)",
            f"rows.s[l] = row_product_{kind}({row}, {vector}, {length});",
            f"{name} = rows.v; }}",
        ]

    def _functions(self, names: Sequence[str]) -> list[str]:
        found = []
        if len(self.loop.domain) > 1:
            found.append(_CODE["quotient"])
        tables = [buffer.dtype for buffer in self.loop.body.tables] if self.loop.width > 1 else []
        found += [Operand.of("t", dtype).lane_reader("loop") for dtype in tables]
        for name, source in zip(names, self.loop.body.sources):
            if isinstance(source, Load) and self.loop.width > 1 and not self.loop.is_uniform(source):
                found.append(Operand.of(name, source.buffer.dtype).lane_reader("loop"))
            if isinstance(source, RowProduct):
                found.append(self._filled("row_product", source.matrix.dtype))
        for target in self.loop.targets:
            if isinstance(target, ElementStore) and self.loop.width > 1:
                found.append(Operand.of("r", target.buffer.dtype).lane_writer("loop"))
            if isinstance(target, ColumnSum):
                found.append(self._filled("add_rows", target.matrix.dtype))
            if isinstance(target, Scatter) and target.part_count:
                found.append(atomic_addition(target.parts.dtype, self.loop.profile.quirks.takes_ptx))
        return found

    def _filled(self, name: str, dtype: str) -> str:
        kind = c_type(dtype)
        words = {"T": kind, "VECTOR": f"{kind}{WIDTH}", "WIDTH": WIDTH, "VLOAD": f"vload{WIDTH}"}
        words |= {"HALF": f"{kind}{WIDTH // 2}", "QUARTER": f"{kind}{WIDTH // 4}", "PAIR": f"{kind}{WIDTH // 8}"}
        return filled(_CODE[name], **words, VSTORE=f"vstore{WIDTH}", **{name: f"{name}_{kind}"})


class TargetCode:
    """The statements that process a loop's results, which are named ``r0``, ``r1`` and so on."""

    def __init__(self, code: LoopCode) -> None:
        self._code = code
        self._loop = code.loop
        #: The statements before the loop, in the body of the loop, and after the loop.
        self.begin: list[str] = []
        self.body: list[str] = []
        self.finish: list[str] = []
        #: The functions that the statements call.
        self.functions: list[str] = []
        #: Buffers for which the code written so far has located the part that an item accumulates into.
        self._found: set[Buffer] = set()
        #: Statements for each lane, as tuples: a template with placeholders, and the result and the index to
        #: substitute.
        self._added: list[tuple[str, str, str]] = []
        first = 0
        for number, target in enumerate(self._loop.targets):
            count = len(results_of(target))
            self._add(number, target, *[f"r{n}" for n in range(first, first + count)])
            first += count
        if self._added:
            self.body.append(self._each_lane(self._added))

    def _add(self, number: int, target: Target, result: str, index: str = "") -> None:
        match target:
            case ElementStore():
                self.body.append(self._store(number, target, result))
            case ScatterStore():
                statement = f"{self._at(target.buffer)}[{{1}}] = {write_w(target.buffer.dtype)}({{0}});"
                self.body.append(self._each_lane([(statement, result, index)]))
            case Fold():
                self._fold(number, target, result)
            case ColumnSum():
                self._add_rows(target, result)
            case Scatter():
                self._scatter(target, result, index)

    def _at(self, buffer: Buffer) -> str:
        return f"{self._code.name_of(buffer)}_at"

    def _store(self, number: int, target: ElementStore, result: str) -> str:
        operand, at = Operand.of(result, target.buffer.dtype), self._at(target.buffer)
        if self._loop.is_scalar:
            return f"{at}[{self._text(target.index.const)}] = {operand.store}({result});"
        if self._loop.in_quads:
            return f"s{number}_quad.s[lane] = {operand.store}({result});"
        step = self._text(self._loop.factors(target.index)[-1])
        if self._loop.width > 1:
            return f"{operand.writer('loop')}({result}, {at} + s{number}_p, {step}, count);"
        return f"{at}[s{number}_p] = {operand.store}({result});"

    def _add_rows(self, target: ColumnSum, result: str) -> None:
        length, step = map(self._code.sizes.of_row, (target.length, target.row_stride))
        self._find_part(target.parts, f"item * (ga_size){length}", length)
        row = f"{self._at(target.matrix)} + {self._text(target.offset)} + {step} * (ga_ssize)i"
        kind, sums = c_type(target.matrix.dtype), f"{self._code.name_of(target.parts)}_mine"
        factor = result if self._loop.width > 1 else f"({kind}{WIDTH})({result})"
        self.body.append(f"add_rows_{kind}({sums}, {row}, {step}, {factor}, count, {length});")

    def _scatter(self, target: Scatter, result: str, index: str) -> None:
        element = f"{self._code.name_of(target.parts)}_mine[{{1}} + {self._text(target.offset)}]"
        size = f"(ga_size){self._text(target.size)}"
        if target.part_count:
            self._find_part(target.parts, f"(GID_0 % (ga_size){self._text(target.part_count)}) * {size}")
            statement = f"add_atomically_{c_type(target.parts.dtype)}(&{element}, {{0}});"
        else:
            self._find_part(target.parts, f"item * {size}", size)
            statement = f"{element} += {{0}};"
        self._added.append((statement, result, index))

    def _text(self, number: int) -> str:
        return self._code.sizes.text(number)

    def _find_part(self, parts: Buffer, offset: str, zeros: str = "") -> None:
        if parts in self._found:
            return
        self._found.add(parts)
        name = self._code.name_of(parts)
        self.begin.append(f"GLOBAL_MEM {ctype(parts.dtype)} *{name}_mine = {name}_at + {offset};")
        if zeros:
            self.begin.append(f"for (ga_size c = 0; c < {zeros}; ++c) {name}_mine[c] = 0;")

    def _each_lane(self, statements: Sequence[tuple[str, str, str]]) -> str:
        """Return code that executes the statements for each lane in use, after the placeholders are substituted."""
        program = self._loop.program
        if self._loop.width == 1:
            return joined(statement.format(*values) for statement, *values in statements)
        dtypes = dict(zip([f"r{n}" for n in range(len(program.results))], program.out_dtypes))
        # Identical results, such as an index that several statements use, share one variable.
        first = {result: f"r{program.results.index(result)}" for result in program.results}
        names = {f"r{n}": first[result] for n, result in enumerate(program.results)}
        lines = ["{"]
        for value in dict.fromkeys(names[value] for _, *values in statements for value in values):
            kind = c_type(dtypes[value])
            lines.append(f"union {{ {kind}{WIDTH} v; {kind} s[{WIDTH}]; }} {value}_lanes; {value}_lanes.v = {value};")
        each = [
            statement.format(*[f"{names[value]}_lanes.s[l]" for value in values]) for statement, *values in statements
        ]
        return joined([*lines, "for (int l = 0; l < count; ++l) {", *each, "}", "}"])

    def _fold(self, number: int, target: Fold, result: str) -> None:
        dtype, width = target.parts.dtype, self._loop.width
        kind, acc, combine = c_type(dtype), f"acc{number}", f"combine{number}"
        identity, write = identity_of(target.fold, dtype), write_w(dtype)
        program = ScalarProgram.of(Scalar(target.fold, dtype), [dtype] * 2)
        part = f"{self._at(target.parts)}[{target.number}UL * items + item]"
        code = {**functions("reductions/reductions.cl"), **functions("loops/loops.cl")}
        words = {"ACC": kind, "VECTOR": f"{kind}{WIDTH}", "WIDTH": WIDTH, "IDENTITY": identity}

        def function(name: str, width: int) -> str:
            statements = scalar_code(program, ["acc", "x"], ["acc"], width=width).statements
            return filled(code[name], **words, **{name: f"{name}{number}", name.upper(): statements})

        def inlined(name: str, **others: object) -> str:
            return filled(body(code[name]), **words, acc=acc, combine=combine, **others)

        self.functions.append(function("combine", 1))
        if width > 1:
            self.functions.append(function("combine_vectors", width))
            self.begin.append(f"{kind}{WIDTH} {acc} = ({kind}{WIDTH})({identity});")
            self.body += [inlined("whole_vector", x=result), f"{acc} = combine_vectors{number}({acc}, {result});"]
            self.finish += ["{", inlined("fold_lanes"), f"{part} = {write}(value);", "}"]
            return
        self.begin.append(f"{kind} {acc} = {identity};")
        self.body.append(f"{acc} = {combine}({acc}, {result});")
        if self._loop.is_serial:
            self.finish.append(f"{part} = {write}({acc});")
        else:
            group = {"GROUP": self._loop.group, "shared": f"shared_{kind}", "PART": part, "STORE": write}
            self.finish.append(inlined("fold_items", **group))
