"""Kernels that reduce channels: in double precision on CPUs, and with compensated sums in float32 on other devices.

A channel may be reduced in parts: result ``[part * n + k]`` belongs to channel ``k`` of the ``n`` channels. On CPUs, an
item either sums one row, using vectors, or sums several neighbouring columns. On other devices, an item computes the
moments of some elements in registers, and merges them into its running moments, so rounding errors do not grow with the
number of elements. A value over 1e19, whose square overflows float32, makes the variance infinite, as in Theano's C
code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.layout import teams
from optdb.codegen.normalization.channels import ITEMS_PER_UNIT, WIDTH, Channels, Runs
from optdb.codegen.operation import Kernels
from optdb.codegen.source import (
    ROUND_EACH_STEP,
    add_offsets,
    body,
    filled,
    functions,
    joined,
    load_w,
    typed,
    work_dtype,
)
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.sizes import largest, smallest

_LANES = 8

#: OpenCL C that computes the range of elements in part `mine`, and their number.
_PART = """const ga_size begin = mine * part, end = min(begin + part, m);
const double count = end - begin;"""


@dataclass(frozen=True)
class Pass:
    """One pass over the elements of a channel."""

    #: Variables that hold the sums, which start at 0.
    sums: tuple[str, ...]
    #: OpenCL C for an element: ``T`` is double or a vector of doubles, and ``LOAD(x)`` is the element of array `x`.
    each: str
    #: OpenCL C that runs after the loop and uses the sums; ``count`` is the number of elements.
    after: str = ""


@dataclass(frozen=True)
class ChannelFold:
    """Kernels that reduce channels."""

    dtype: str
    runs: Runs
    statistic: Statistic

    @property
    def sum_dtypes(self) -> list[str]:
        return ["float64"] * len(self.statistic.wide_sums)

    def kernels(self) -> list[Kernel]:
        """Return the kernels for rows and for columns."""
        code = self._kernel("fold_rows", self._rows()) + self._kernel("fold_columns", self._columns())
        return Kernel.all_of(ROUND_EACH_STEP + code)

    def launch(
        self, kernels: Kernels, context: Context, channels: Channels, parts: int, part: int, arrays: Sequence[Array]
    ) -> None:
        """Reduce nonempty channels, each in `parts` parts of `part` elements.

        The arrays are the inputs, the centers if there are any, and the results; all are C-contiguous.
        """
        kernel = kernels["fold_columns" if channels.in_columns else "fold_rows"]
        n, m = channels.number, channels.size
        args = [n, m, parts, part, *channels.fold_args(), *arrays]
        total = (channels.blocks if channels.in_columns else n) * parts
        each = -(-total // (context.profile.compute_units * ITEMS_PER_UNIT))
        kernel.call(-(-total // each), 1, total, each, *args)

    def _kernel(self, name: str, body: str) -> str:
        sizes = "total", "each", "n", "m", "parts", "part"
        params = _params(self.dtype, self.runs, self.statistic, sizes, "ga_double", self.statistic.wide_sums)
        return f"""
OUTLINED_KERNEL void {name}({params})
{{
{body}
}}
"""

    def _loads(self, width: int, at: str) -> str:
        if width == 1:
            return f"#undef T\n#undef LOAD\n#define T double\n#define LOAD(a) ((double){load_w(self.dtype)}(a[{at}]))"
        read = f"vload{width}(0, a + {at})"
        if self.dtype == "float16":
            read = f"vload_half{width}(0, (const GLOBAL_MEM half *)(a + {at}))"
        return f"#undef T\n#undef LOAD\n#define T double{width}\n#define LOAD(a) convert_double{width}({read})"

    def _channel(self, width: int = 1) -> str:
        """Return code that locates the first element of each of `width` channels, starting at channel `k`."""
        base = f"ga_size rest = k;\nga_ssize base = 0;\n{add_offsets('rest', 'k', self.runs.kept, {'base': 'ks'})}"
        center = "const T c = LOAD(a_center);" if self.statistic.center else ""
        return joined([base, self._loads(width, "k"), center, self._loads(width, "p")])

    def _results(self) -> str:
        return joined(f"{out}[mine * n + k] = {name};" for out, name in self.statistic.wide_sums.items())

    def _rows(self) -> str:
        last = self.runs.folded - 1
        steps = []
        for once in self.statistic.passes:
            lanes = [f"lanes_{name}" for name in once.sums]
            steps.append(
                f"""
double {", ".join(f"{name} = 0" for name in once.sums)};
{{
double{_LANES} {", ".join(f"{name} = 0" for name in lanes)};
ga_size i = begin;
while (i < end) {{
const ga_size column = i % r{last};
ga_size at = i / r{last};
ga_ssize p = base + column;
{add_offsets("at", "r", last, {"p": "rs"})}
const ga_ssize stop = p + min(end - i, r{last} - column);
i += stop - p;
{self._loads(_LANES, "p")}
for (; p + {_LANES} <= stop; p += {_LANES}) {{
{_renamed(once.each, once.sums)}
}}
{self._loads(1, "p")}
for (; p < stop; ++p) {{
{once.each}
}}
}}
{joined(f"{name} += {' + '.join(f'lanes_{name}.s{lane}' for lane in range(_LANES))};" for name in once.sums)}
}}
{once.after}"""
            )
        return f"""
const ga_size item_end = min(((ga_size)get_global_id(0) + 1) * each, total);
for (ga_size item = get_global_id(0) * each; item < item_end; ++item) {{
const ga_size k = item / parts, mine = item % parts;
{_PART}
{self._channel()}
{"".join(steps)}
{self._results()}
}}"""

    def _columns(self) -> str:
        """Return code that reduces `WIDTH` columns in vectors, or one by one if a run has fewer columns."""
        inner = self.runs.kept - 1
        return f"""
const ga_size pieces = (k{inner} + {WIDTH} - 1) / {WIDTH};
const ga_size blocks = total / parts;
const ga_size item_end = min(((ga_size)get_global_id(0) + 1) * each, total);
for (ga_size item = get_global_id(0) * each; item < item_end; ++item) {{
const ga_size mine = item / blocks, block = item % blocks;
{_PART}
const ga_size first = block % pieces * {WIDTH}, row = block / pieces * k{inner};
if (k{inner} >= {WIDTH}) {{
const ga_size start = min(first, k{inner} - {WIDTH}), k = row + start;
{self._channel(WIDTH)}
{self._passes()}
{self._unpacked()}
}} else {{
for (ga_size k = row; k < row + k{inner}; ++k) {{
{self._channel()}
{self._passes()}
{self._results()}
}}
}}
}}"""

    def _unpacked(self) -> str:
        """Return code that stores vectors of results, without the columns that other work items store."""
        stores = [
            f"{{\ndouble all[{WIDTH}];\nvstore{WIDTH}({name}, 0, all);\n"
            f"for (ga_size j = first - start; j < {WIDTH}; ++j)\n{out}[mine * n + k + j] = all[j];\n}}"
            for out, name in self.statistic.wide_sums.items()
        ]
        return joined(stores)

    def _passes(self) -> str:
        offsets = add_offsets("at", "r", self.runs.folded, {"p": "rs"})
        location = f"ga_size at = i;\nga_ssize p = base;\n{offsets}"
        return joined(
            f"T {', '.join(f'{name} = 0' for name in once.sums)};\n"
            f"for (ga_size i = begin; i < end; ++i) {{\n{location}\n{once.each}\n}}\n{once.after}"
            for once in self.statistic.passes
        )


def _renamed(each: str, sums: Iterable[str]) -> str:
    for name in sums:
        each = each.replace(f"{name} +=", f"lanes_{name} +=")
    return each


#: Maximum work-group sizes; powers of two.
GROUP = 256
_GROUP_OF_NUMBERS = 64
#: Number of elements that an item loads at the same time to hide latency.
SEVERAL = 8
#: Teams of up to this many items may reduce only one element per item, so that neighbouring items read neighbouring
#: elements.
_WARP = 32

_CODE = {
    **functions("normalization/compensated.cl"),
    "add": filled(functions("reductions/reductions.cl")["add"], NARROW="W"),
}


@dataclass(frozen=True, eq=False)
class Statistic:
    """A statistic of each channel: its state (an OpenCL C struct) and the code that accumulates it."""

    #: The name of the struct. The functions ``merge_`` and ``merged_`` have this name, in lower case, as a suffix.
    name: str
    #: Maps each member of a part's state to the name of the array that holds the member, or to '' if there is no such
    #: array. Sums in float64 have no arrays of compensation terms.
    members: Mapping[str, str]
    #: The names of all functions that the code uses.
    helpers: tuple[str, ...]
    arrays: tuple[str, ...]
    #: Code that accumulates `SEVERAL` elements, ``x[u]``, of each array, and code that accumulates one element of each
    #: array.
    several: str
    one: str
    center: bool
    results: Mapping[str, str]
    #: For sums in float64: the passes over the elements, and a map from each array of sums to the variable in which a
    #: pass accumulates the sum.
    passes: tuple[Pass, ...]
    wide_sums: Mapping[str, str]

    def declarations(self, computed: str = "W") -> str:
        """Return the definitions of the struct and the functions; `computed` is the C type of the numbers in them."""
        struct = f"typedef struct {{ W {', '.join(self.members)}; }} {self.name};\n"
        return filled(struct + "".join(_CODE[helper] for helper in self.helpers), W=computed)


MOMENTS = Statistic(
    name="Moments",
    members={"count": "", "mean": "means", "rest": "rests", "squares": "deviations", "lost": ""},
    helpers=("add", "total", "merge_moments", "merge_elements"),
    arrays=("x",),
    several="merge_elements(&state, x, SEVERAL);",
    one="merge_elements(&state, x, 1);",
    center=False,
    results={"means": "state.mean", "rests": "state.rest", "deviations": "total(state.squares, state.lost)"},
    passes=(
        Pass(("s0",), "s0 += LOAD(a_x);", "const T mean = s0 / count;"),
        Pass(("s1",), "const T d = LOAD(a_x) - mean;\ns1 += d * d;"),
    ),
    wide_sums={"means": "mean", "deviations": "s1"},
)
_SUMS = {
    **{"dy": "sums_dy", "dy_lost": "lost_dy", "product": "products", "product_lost": "lost_products"},
    **{"d": "sums_d", "d_lost": "lost_d"},
}
GRADIENT_SUMS = Statistic(
    name="Sums",
    members=_SUMS,
    helpers=("add", "total", "merge_sums", "add_element"),
    arrays=("x", "dy"),
    several="#pragma unroll\nfor (uint u = 0; u < SEVERAL; ++u)\nadd_element(&state, x[u], dy[u], c);",
    one="add_element(&state, x[0], dy[0], c);",
    center=True,
    results={array: f"state.{member}" for member, array in _SUMS.items()},
    passes=(
        Pass(("s0", "s1", "s2"), "const T d = LOAD(a_x) - c, by = LOAD(a_dy);\ns0 += by;\ns1 += by * d;\ns2 += d;"),
    ),
    wide_sums={"sums_dy": "s0", "products": "s1", "sums_d": "s2"},
)


@dataclass(frozen=True)
class CompensatedFold:
    """Kernels that reduce channels."""

    dtype: str
    runs: Runs
    statistic: Statistic

    @property
    def sum_dtypes(self) -> list[str]:
        return [work_dtype(self.dtype)] * len(self.statistic.results)

    def kernels(self) -> list[Kernel]:
        """Return the kernels for rows and for columns."""
        return _fold_kernels(self.dtype, self.runs, self.statistic)

    def launch(
        self, kernels: Kernels, context: Context, channels: Channels, parts: int, part: int, arrays: Sequence[Array]
    ) -> None:
        """Reduce nonempty channels; the parameters are those of `ChannelFold.launch`."""
        n, m = channels.number, channels.size
        if channels.in_columns:
            kernels["fold_columns"].scall(n * parts, n, 1, m, parts, part, *channels.fold_args(), *arrays)
            return
        wanted = smallest(part, largest(_WARP, part // SEVERAL + 1))
        items, group, team = teams(context, GROUP, n * parts, wanted)
        kernels["fold_rows"].call(items, group, n, team, m, parts, part, *channels.fold_args(), *arrays)


def merging_kernel(name: str, dtype: str, statistic: Statistic, in_float64: bool, **words: str) -> Kernel:
    """Return the kernel that merges the parts of each channel and computes the per-channel numbers."""
    sums, computed = (statistic.wide_sums, "ga_double") if in_float64 else (statistic.results, "W")
    values = [f"{array}[at]" if array in sums else "0" for array in statistic.members.values()]
    if "count" in statistic.members:
        values[0] = "min(part, m - i * part)"
    words |= {"N": computed, "SUMS": ", ".join(f"ARRAY {computed} *{array}" for array in sums)}
    code = functions("normalization/numbers.cl")[name]
    code = code.replace("EACH_CHANNEL", body(_CODE["merged"]).replace("PARTIAL", ", ".join(values)))
    code = filled(code.replace("MERGED", body(_CODE[f"merged_{statistic.name.lower()}"])), **words)
    code = statistic.declarations(computed) + code
    return Kernel(ROUND_EACH_STEP + _in_words(code, dtype, statistic, _GROUP_OF_NUMBERS), name)


def launch_merging(kernel: CompiledKernel, context: Context, n: int, size: int, parts: int, *args: Any) -> None:
    """Launch a kernel from `merging_kernel` for `n` channels of `size` elements, each reduced in `parts` parts."""
    items, group, team = teams(context, _GROUP_OF_NUMBERS, n, parts)
    kernel.call(items, group, n, team, size, parts, *args)


def _in_words(code: str, dtype: str, statistic: Statistic, group: int, row: str = "", **words: Any) -> str:
    """Return code with its placeholders substituted; the names of the merging kernels' helpers get a prefix."""
    code = typed(code.replace("MEET", body(_CODE["meet"])), dtype, **words)
    code = filled(code, State=statistic.name, MERGE=f"merge_{statistic.name.lower()}")
    beginning = "" if row else "merging_"
    names = {name: beginning + name for name in (statistic.name, *statistic.helpers)}
    return typed(code, dtype, GROUP=group, SEVERAL=SEVERAL, ROW=row, **names)


@functools.lru_cache(maxsize=256)
def _fold_kernels(dtype: str, runs: Runs, statistic: Statistic) -> list[Kernel]:
    code = statistic.declarations() + _CODE["fold_rows"] + _CODE["fold_columns"]
    fold = body(_CODE["fold"])
    words = {
        "PARAMS": _params(dtype, runs, statistic, ("n", "items", "m", "parts", "part"), "W", statistic.results),
        "BASE": _base(runs, statistic),
        "LOCATE": _locate(runs),
        "READ_SEVERAL": _read(runs, statistic, "SEVERAL", statistic.several),
        "READ_ONE": _read(runs, statistic, "1", statistic.one),
        "STORE_STATE": joined(f"{name}[mine * n + k] = {value};" for name, value in statistic.results.items()),
    }
    code = code.replace("FOLD\n", fold + "\n")
    code = _in_words(code, dtype, statistic, GROUP, f"r{runs.folded - 1}", **words)
    return Kernel.all_of(ROUND_EACH_STEP + code)


def _params(
    dtype: str, runs: Runs, statistic: Statistic, sizes: Sequence[str], sum_type: str, sums: Iterable[str]
) -> str:
    kept, folded = range(runs.kept), range(runs.folded)
    lengths = [f"ga_size {name}" for name in (*sizes, *[f"k{d}" for d in kept], *[f"r{d}" for d in folded])]
    steps = [*[f"ga_ssize ks{d}" for d in kept], *[f"ga_ssize rs{d}" for d in folded]]
    arrays = [f"ARRAY {ctype(dtype)} *restrict a_{x}" for x in (*statistic.arrays, *["center"] * statistic.center)]
    arrays += [f"ARRAY {sum_type} *restrict {name}" for name in sums]
    return ", ".join([*lengths, *steps, *arrays])


def _base(runs: Runs, statistic: Statistic) -> str:
    center = ["const W c = LOAD(a_center[k]);"] * statistic.center
    offsets = add_offsets("rest_of_k", "k", runs.kept, {"base": "ks"})
    return joined([*center, "ga_size rest_of_k = k;\nga_ssize base = 0;", offsets])


def _locate(runs: Runs) -> str:
    last = runs.folded - 1
    lines = [f"p = base + (ga_ssize)column * rs{last};"]
    if last:
        lines = ["{\nga_size at = row;", *lines, add_offsets("at", "r", last, {"p": "rs"}), "}"]
    return joined(lines)


def _next(runs: Runs) -> str:
    """Return code that moves `step` elements ahead; the code contains no division if a channel has at most two runs."""
    if runs.folded == 1:
        return "p += (ga_ssize)step * rs0;"
    wrap = "column += column_step;\nif (column >= ROW) {\ncolumn -= ROW;\n"
    if runs.folded == 2:
        by_row = "p += (ga_ssize)row_step * rs0 + (ga_ssize)column_step * rs1;\n"
        return f"{by_row}{wrap}p += rs0 - (ga_ssize)ROW * rs1;\n}}"
    return f"row += row_step;\n{wrap}++row;\n}}\n{_locate(runs)}"


def _read(runs: Runs, statistic: Statistic, count: str, take: str) -> str:
    loads = joined(f"{x}[u] = LOAD(a_{x}[p]);" for x in statistic.arrays)
    declared = joined(f"W {x}[{count}];" for x in statistic.arrays)
    loop = f"#pragma unroll\nfor (uint u = 0; u < {count}; ++u) {{\n{loads}\n{_next(runs)}\n}}"
    return joined([declared, loop, take])
