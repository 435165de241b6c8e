"""Replaces the driver's OpenCL header with declarations of the built-in functions that a source uses.

Some drivers parse a 900 kB header before each program. Clang skips the header if the header's include guard is defined,
but then the program must declare the functions that it uses. Rare functions and constants are not listed: programs that
use them are built with the header. Functions and types are from the OpenCL C Specification 1.2, sections 6.1 and 6.12.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

#: The option that makes clang skip its header.
GUARD = "-D_OPENCL_H_"

_WORD = re.compile(r"\b[A-Za-z_]\w*")

_SIGNED = "char", "short", "int", "long"
_UNSIGNED = "uchar", "ushort", "uint", "ulong"
_WHOLE = _SIGNED + _UNSIGNED
_REAL = "float", "double"
_WIDTHS = "", "2", "3", "4", "8", "16"
_SPACES = "__global", "__local", "__private"
_READ_SPACES = (*_SPACES, "__constant")
#: Maps a scalar type to the signed and unsigned integer types of the same size.
_SAME_BITS = {"float": ("int", "uint"), "double": ("long", "ulong")} | {
    name: pair for pair in zip(_SIGNED, _UNSIGNED, strict=True) for name in pair
}

_PRELUDE = """\
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t; typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __INTPTR_TYPE__ intptr_t; typedef __UINTPTR_TYPE__ uintptr_t;
typedef uint cl_mem_fence_flags;
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define NULL ((void *)0)
#define MAXFLOAT 0x1.fffffep127f
#define HUGE_VALF (__builtin_huge_valf())
#define HUGE_VAL (__builtin_huge_val())
#define INFINITY (__builtin_inff())
#define NAN (__builtin_astype(0x7fffffff, float))
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 0xffffffffU
#define LONG_MAX 0x7fffffffffffffffL
#define LONG_MIN (-0x7fffffffffffffffL - 1)
#define ULONG_MAX 0xffffffffffffffffUL
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1.0p-126f
#define FLT_EPSILON 0x1.0p-23f
#define DBL_EPSILON 0x1.0p-52
#define M_PI 0x1.921fb54442d18p+1
#define OPTDB_CONST __attribute__((overloadable, const))
#define OPTDB_PURE __attribute__((overloadable, pure))
#define OPTDB_OVERLOAD __attribute__((overloadable))
#define OPTDB_CONVERGENT __attribute__((overloadable, convergent))
"""

#: The last line of the declarations, which restarts line numbers at 1.
_END = "#line 1\n"

#: Maps each signature to the functions that have it. T is a real type, R is the result type of a comparison, and N is
#: int, all with the same vector width; S is the scalar type of T.
_OF_REALS = {
    "T ?(T)": "acos acosh acospi asin asinh asinpi atan atanh atanpi cbrt ceil cos cosh cospi degrees erf erfc exp "
    "exp10 exp2 expm1 fabs floor lgamma log log10 log1p log2 logb radians rint round rsqrt sign sin sinh sinpi sqrt "
    "tan tanh tanpi tgamma trunc",
    "T ?(T, T)": "atan2 atan2pi copysign fdim fmax fmin fmod hypot max maxmag min minmag nextafter pow powr remainder "
    "step",
    "T ?(T, T, T)": "bitselect clamp fma mad mix smoothstep",
    "T ?(T, N)": "ldexp pown rootn",
    "N ?(T)": "ilogb",
    "R ?(T)": "isfinite isinf isnan isnormal signbit",
    "R ?(T, T)": "isequal isgreater isgreaterequal isless islessequal islessgreater isnotequal isordered isunordered",
}
#: Signatures with both vectors and scalars.
_WITH_NUMBERS = {
    "T ?(T, S)": "fmax fmin max min",
    "T ?(S, T)": "step",
    "T ?(T, S, S)": "clamp",
    "T ?(T, T, S)": "mix",
    "T ?(S, S, T)": "smoothstep",
    "T ?(T, int)": "ldexp",
}
#: Signatures that exist only for float.
_OF_FLOATS = {
    "T ?(T)": "half_cos half_exp half_exp10 half_exp2 half_log half_log10 half_log2 half_recip half_rsqrt half_sin "
    "half_sqrt half_tan native_cos native_exp native_exp10 native_exp2 native_log native_log10 native_log2 "
    "native_recip native_rsqrt native_sin native_sqrt native_tan",
    "T ?(T, T)": "half_divide half_powr native_divide native_powr",
}
#: Signatures for an integer type T; U is the unsigned type of the same width.
_OF_WHOLE = {
    "T ?(T)": "clz popcount",
    "U ?(T)": "abs",
    "U ?(T, T)": "abs_diff",
    "T ?(T, T)": "add_sat hadd max min mul_hi rhadd rotate sub_sat",
    "T ?(T, T, T)": "bitselect clamp mad_hi mad_sat",
}
_OF_WHOLE_WITH_NUMBERS = {"T ?(T, S)": "max min", "T ?(T, S, S)": "clamp"}
#: Functions that return work-item indices and sizes.
_OF_ITEMS = {
    "uint ?(void)": "get_work_dim",
    "size_t ?(uint)": "get_global_id get_global_offset get_global_size get_group_id get_local_id get_local_size "
    "get_num_groups",
}
_FENCES = {"void ?(cl_mem_fence_flags)": "barrier"}
#: Atomics on int and uint; the address space P is global or local.
_ATOMICS = {
    "T ?(volatile P T *, T)": "atomic_add atomic_and atomic_max atomic_min atomic_or atomic_sub atomic_xchg atomic_xor",
    "T ?(volatile P T *)": "atomic_dec atomic_inc",
    "T ?(volatile P T *, T, T)": "atomic_cmpxchg",
}

_CONVERTED = re.compile(rf"convert_({'|'.join(_WHOLE + _REAL)})(2|3|4|8|16|)(_sat)?(_rt[ezpn])?")
_REINTERPRETED = re.compile(rf"as_(?:{'|'.join(_WHOLE + _REAL)})(?:2|3|4|8|16|)")
_MOVED = re.compile(r"v(load|store)(2|3|4|8|16)")
_MOVED_HALVES = re.compile(r"v(load|store)a?_half(2|3|4|8|16|)(_rt[ezpn])?")


def declared(source: str, has_double: bool) -> str:
    """Prepend declarations of the built-ins that a source uses; line numbers in logs still refer to the source."""
    words = sorted(set(_WORD.findall(source)))
    lines = [line for word in words for line in _lines(word, has_double)]
    return "\n".join([_PRELUDE + _vectors(has_double), *lines, _END + source])


def without_declarations(source: str) -> str:
    """Remove the declarations that `declared` added; return any other source unchanged."""
    return source.partition(_END)[2] if source.startswith(_PRELUDE) else source


@functools.lru_cache(maxsize=2)
def _vectors(has_double: bool) -> str:
    scalars = [name for name in _WHOLE + _REAL if has_double or name != "double"]
    return "\n".join(
        f"typedef {scalar} {scalar}{width} __attribute__((ext_vector_type({width})));"
        for scalar in scalars
        for width in _WIDTHS
        if width
    )


@functools.lru_cache(maxsize=4096)
def _lines(name: str, has_double: bool) -> tuple[str, ...]:
    """Return declarations for all overloads of a built-in function; an empty tuple for other names."""
    reals = _REAL if has_double else _REAL[:1]
    return tuple(dict.fromkeys(_declarations(name, reals)))


def _declarations(name: str, reals: tuple[str, ...]) -> Iterator[str]:
    if _REINTERPRETED.fullmatch(name):
        yield f"#define {name}(x) __builtin_astype((x), {name[3:]})"
    yield from _elementwise(name, reals)
    yield from _selections(name, reals)
    yield from _conversions(name, reals)
    yield from _moves(name, reals)
    for table, attribute in ((_OF_ITEMS, "OPTDB_CONST"), (_FENCES, "OPTDB_CONVERGENT")):
        for signature in _signatures(table, name):
            yield _filled(signature, name, attribute)
    for signature in _signatures(_ATOMICS, name):
        types = ("int", "uint", "float") if name == "atomic_xchg" else ("int", "uint")
        for space in ("__global", "__local"):
            for scalar in types:
                yield _filled(signature, name, "OPTDB_OVERLOAD", T=scalar, P=space)


def _elementwise(name: str, reals: tuple[str, ...]) -> Iterator[str]:
    tables = (
        (_OF_REALS, reals, _WIDTHS),
        (_WITH_NUMBERS, reals, _WIDTHS[1:]),
        (_OF_FLOATS, ("float",), _WIDTHS),
        (_OF_WHOLE, _WHOLE, _WIDTHS),
        (_OF_WHOLE_WITH_NUMBERS, _WHOLE, _WIDTHS[1:]),
    )
    for table, scalars, widths in tables:
        for signature in _signatures(table, name):
            for scalar in scalars:
                for width in widths:
                    yield _filled(signature, name, "OPTDB_CONST", **_types(scalar, width))


def _types(scalar: str, width: str) -> dict[str, str]:
    signed, unsigned = _SAME_BITS[scalar]
    # Comparing scalars yields int; comparing vectors yields integers with as many bits as the elements.
    result = signed + width if width else "int"
    return {"T": scalar + width, "S": scalar, "N": f"int{width}", "U": unsigned + width, "R": result}


def _selections(name: str, reals: tuple[str, ...]) -> Iterator[str]:
    if name in ("any", "all"):
        for scalar in _SIGNED:
            for width in _WIDTHS:
                yield f"int OPTDB_CONST {name}({scalar}{width});"
    if name == "select":
        for scalar in _WHOLE + reals:
            for width in _WIDTHS:
                for condition in _SAME_BITS[scalar]:
                    vector = scalar + width
                    yield f"{vector} OPTDB_CONST select({vector}, {vector}, {condition}{width});"


def _conversions(name: str, reals: tuple[str, ...]) -> Iterator[str]:
    match = _CONVERTED.fullmatch(name)
    if match is None or (match[1] == "double" and "double" not in reals):
        return
    for scalar in _WHOLE + reals:
        yield f"{match[1]}{match[2]} OPTDB_CONST {name}({scalar}{match[2]});"


def _moves(name: str, reals: tuple[str, ...]) -> Iterator[str]:
    match = _MOVED.fullmatch(name)
    if match is not None:
        for scalar in _WHOLE + reals:
            yield from _moved(name, match[1], scalar + match[2], scalar)
    match = _MOVED_HALVES.fullmatch(name)
    if match is not None:
        for scalar in reals if match[1] == "store" else ("float",):
            yield from _moved(name, match[1], scalar + match[2], "half")


def _moved(name: str, way: str, vector: str, scalar: str) -> Iterator[str]:
    if way == "load":
        for space in _READ_SPACES:
            yield f"{vector} OPTDB_PURE {name}(size_t, const {space} {scalar} *);"
    else:
        for space in _SPACES:
            yield f"void OPTDB_OVERLOAD {name}({vector}, size_t, {space} {scalar} *);"


def _signatures(table: dict[str, str], name: str) -> Iterator[str]:
    for signature, names in table.items():
        if name in names.split():
            yield signature


def _filled(signature: str, name: str, attribute: str, **types: str) -> str:
    text = re.sub(r"\b([A-Z])\b", lambda match: types[match[1]], signature)
    return f"{text.replace('?', f'{attribute} {name}')};"
