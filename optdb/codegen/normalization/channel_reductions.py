"""Kernels that reduce channels in double precision, on CPUs: sums over the elements of each channel.

An item sums a row in vectors, or several neighbouring columns. A channel may be reduced in parts: result ``[part * n +
k]`` belongs to channel ``k`` of ``n``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.normalization.channels import ITEMS_PER_UNIT, WIDTH, Channels, Runs
from optdb.codegen.source import ROUND_EACH_STEP, add_offsets, joined, load_w
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context

_LANES = 8

#: The elements of part `mine`.
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
    #: Names of the arrays in the passes.
    arrays: tuple[str, ...]
    passes: tuple[Pass, ...]
    #: Variables of the passes that are stored in the arrays ``out0``, ``out1`` and so on.
    results: tuple[str, ...]
    #: Whether there is another array with one element for each channel, ``c`` in the passes.
    center: bool = False

    @property
    def sum_dtypes(self) -> list[str]:
        """The dtypes of the results."""
        return ["float64"] * len(self.results)

    def kernels(self) -> list[Kernel]:
        """Return the kernels for rows and for columns."""
        code = self._kernel("fold_rows", self._rows()) + self._kernel("fold_columns", self._columns())
        return Kernel.all_of(ROUND_EACH_STEP + code)

    def launch(
        self,
        kernels: Mapping[str, CompiledKernel],
        context: Context,
        channels: Channels,
        parts: int,
        part: int,
        arrays: Sequence[Array],
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
        stored, kept_runs, folded_runs = ctype(self.dtype), range(self.runs.kept), range(self.runs.folded)
        lengths = [f"ga_size k{d}" for d in kept_runs] + [f"ga_size r{d}" for d in folded_runs]
        steps = [f"ga_ssize ks{d}" for d in kept_runs] + [f"ga_ssize rs{d}" for d in folded_runs]
        arrays = [f"ARRAY {stored} *restrict {array}" for array in (*self.arrays, *["center"] * self.center)]
        arrays += [f"ARRAY ga_double *restrict out{i}" for i in range(len(self.results))]
        sizes = "ga_size total, ga_size each, ga_size n, ga_size m, ga_size parts, ga_size part"
        return f"""
OUTLINED_KERNEL void {name}({sizes}, {", ".join([*lengths, *steps, *arrays])})
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
        """Return code that locates the first elements of `width` channels, from channel `k` on."""
        base = f"ga_size rest = k;\nga_ssize base = 0;\n{add_offsets('rest', 'k', self.runs.kept, {'base': 'ks'})}"
        center = "const T c = LOAD(center);" if self.center else ""
        return joined([base, self._loads(width, "k"), center, self._loads(width, "p")])

    def _element_location(self) -> str:
        return f"ga_size at = i;\nga_ssize p = base;\n{add_offsets('at', 'r', self.runs.folded, {'p': 'rs'})}"

    def _results(self) -> str:
        return joined(f"out{i}[mine * n + k] = {name};" for i, name in enumerate(self.results))

    def _rows(self) -> str:
        last = self.runs.folded - 1
        steps = []
        for once in self.passes:
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
{joined(f"{name} += {_all_lanes(f'lanes_{name}')};" for name in once.sums)}
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
        """Return code that stores vectors of results, except columns that belong to another item."""
        stores = [
            f"{{\ndouble all[{WIDTH}];\nvstore{WIDTH}({name}, 0, all);\n"
            f"for (ga_size j = first - start; j < {WIDTH}; ++j)\nout{i}[mine * n + k + j] = all[j];\n}}"
            for i, name in enumerate(self.results)
        ]
        return joined(stores)

    def _passes(self) -> str:
        return joined(
            f"T {', '.join(f'{name} = 0' for name in once.sums)};\n"
            f"for (ga_size i = begin; i < end; ++i) {{\n{self._element_location()}\n{once.each}\n}}\n{once.after}"
            for once in self.passes
        )


def _all_lanes(vector: str) -> str:
    return " + ".join(f"{vector}.s{lane}" for lane in range(_LANES))


def _renamed(each: str, sums: Iterable[str]) -> str:
    """Return the code of a pass, in which the sums are renamed to vectors with one partial sum per lane."""
    for name in sums:
        each = each.replace(f"{name} +=", f"lanes_{name} +=")
    return each
