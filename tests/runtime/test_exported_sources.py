"""Only programs that exporters write are accepted in files."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb.runtime.exported.preprocessing import preprocess
from optdb.runtime.exported.sources import SourceError, read_program
from tests.runtime.planned import SOURCE

KERNEL = "__kernel void f(__global float *x, ulong n) {}\n"


def test_what_kernels_take_is_read_from_their_declarations():
    source = """
    typedef struct { ushort bits; } ga_half;
    static __attribute__((noinline)) void helper(__global float *x) { x[0] = 1.5e+3f; }
    #pragma OPENCL FP_CONTRACT OFF
    __attribute__((reqd_work_group_size(64, 1, 1)))
    __kernel void first(const __global ga_half *restrict x, __local uint *l, __constant float *c, const ulong n) {}
    kernel __attribute__((work_group_size_hint(8, 1, 1))) void second(long16 s, unsigned int a, float f) {}
    __kernel void third(void) {}
    __kernel void fourth() {}
    """
    source = "\n".join(line.strip() for line in source.split("\n"))
    assert read_program(source) == {
        "first": ("global", "local", "constant", "uint64"),
        "second": ("long16", "uint32", "float32"),
        "third": (),
        "fourth": (),
    }


@pytest.mark.parametrize(
    ("source", "words"),
    [
        # Ways to read another file
        ('#include "x"\n', "has '\"'"),
        ("#include <x>\n", "directive in line 1"),
        ("#inc\\  \nlude <x>\n", "has '\\\\\\\\'"),
        ("#inc\\\nlude <x>\n", "has '\\\\\\\\'"),
        ("#/**/include <x>\n", r"has '/\*'"),
        (" # include <x>\n", "directive in line 1"),
        ("%:include <x>\n", "has '%:'"),
        ("??=include <x>\n", r"has '\?\?'"),
        ("#import <x>\n", "directive in line 1"),
        ("#include_next <x>\n", "directive in line 1"),
        ("#embed <x>\n", "directive in line 1"),
        ('#define A "/*\\\n#include "x"\n', "has '\"'"),
        ("#if __has_include(<x>)\n#endif\n", "directive in line 1"),
        ("int a = __has_include(x);\n", "__has_include"),
        ("asm(\".incbin 'x'\");\n", "has '\"'"),
        ("void g() { asm(x); }\n", "'asm'"),
        ("void g() { __asm__(x); }\n", "'__asm__'"),
        ("__constant char t[2] = {37, 0};\n__kernel void f(ulong n) { printf(t); }", "'printf'"),
        # Effects on the compiler's process
        ("#pragma clang __debug crash\n", "directive in line 1"),
        ("#pragma unroll 99999\n", "directive in line 1"),
        ("int a;_Pragma(x)\n", "'_Pragma'"),
        ("#define A A A\n", "directive in line 1"),
        ("#line 7\n", "directive in line 1"),
        ("int x; # define A\n", "directive in line 1"),
        ("void g() { __builtin_trap(); }\n", "'__builtin_trap'"),
        ("int a = " + "(" * 300 + "1" + ")" * 300 + ";", "nests more than 250 brackets"),
        *((code, "brackets that do not match") for code in ("int a = (1;", "int a = )(1;", "int a = (1];")),
        ("int " + "a" * 2000 + ";", "name of 2000 letters"),
        ("__attribute__((constructor)) void g() {}", "attribute 'constructor'"),
        ("__attribute__((noinline, ifunc(x))) void g() {}", "attribute 'ifunc'"),
        ("__attribute__ void g() {}", "unsupported form"),
        ("__attribute__((aligned(99999999))) int a;", "unsupported form"),
        ("__attribute__((pure" + ",pure" * 30 + ")) int a;", "unsupported form"),
        # A driver does not check these arguments, whose types have their usual names or other names
        ("__kernel void f(sampler_t s) {}", "'sampler_t'"),
        ("__kernel void f(read_only image2d_t s) {}", "'image2d_t'"),
        ("__kernel void f(__global float *x, image2d_array_t i) {}", "'image2d_array_t'"),
        ("#define P(a, b) a##b\n__kernel void f(P(samp, ler_t) s) {}", "directive in line 1"),
        ("__kernel void f(sam##pler_t s) {}", "directive in line 1"),
        ("typedef struct { long a; } T;\n__kernel void f(T s) {}", "takes 'T s'"),
        ("__kernel void f(struct S { long a; } s) {}", "takes 'struct S"),
        ("typedef struct { long a[9]; } ulong;\n__kernel void f(ulong s) {}", "redefines the name 'ulong'"),
        ("typedef struct S ulong __attribute__((packed));", "redefines the name 'ulong'"),
        ("struct S typedef ulong;", "redefines the name 'ulong'"),
        ("typedef struct S *a, ulong;", "redefines the name 'ulong'"),
        ("typedef struct S (*long16);", "redefines the name 'long16'"),
        ("__kernel void f(float4 s) {}", "takes 'float4 s'"),
        ("__kernel void f(size_t s) {}", "takes 'size_t s'"),
        ("__kernel void f(float *s) {}", r"takes 'float \* s'"),
        ("__kernel void f(__private ulong s) {}", "takes '__private ulong s'"),
        ("__kernel void f(__global float **s) {}", r"takes '__global float \* \* s'"),
        ("__kernel void f(__global float *s[2]) {}", "takes"),
        ("__kernel void f(void (*g)(void)) {}", "takes"),
        ("__kernel void f(ulong) {}", "takes 'ulong'"),
        ("__kernel void f(ulong n, ...) {}", "takes"),
        ("__kernel int f(ulong n) {}", "kernel of an unsupported form"),
        ("__kernel void (f)(ulong n) {}", "kernel of an unsupported form"),
        ("__kernel", "kernel of an unsupported form"),
        ("void f(ulong n) {} __kernel", "kernel of an unsupported form"),
        ("__kernel void __attribute__((aligned(8))) (f)(ulong n) {}", "kernel of an unsupported form"),
        (KERNEL + KERNEL.replace("ulong", "uint"), "kernel 'f' twice"),
        # Texts that a scanner and a compiler could read differently
        ("// a comment\n", "has '//'"),
        ("int a = 'x';\n", 'has "\'"'),
        ("int a;\r\n", r"has '\\r'"),
        ("int ä;\n", "has 'ä'"),
        ("int a; \0", "has '.x00'"),
    ],
)
def test_what_programs_must_not_say(source, words):
    with pytest.raises(SourceError, match=words):
        read_program(source)


REPEATED = [
    "(",
    "#",
    "a ",
    "__kernel ",
    "__kernel void f(",
    "__attribute__((",
    "__attribute__((pure)) ",
    "typedef ",
    "\n#\n",
]


@pytest.mark.parametrize("text", REPEATED)
def test_reading_takes_linear_time(text):
    def seconds(count):
        source = text * count
        start = time.process_time()
        with contextlib.suppress(SourceError):
            read_program(source)
        return time.process_time() - start

    seconds(1000)
    # If the time were quadratic, a source of eight times the size would take 64 times as long.
    assert seconds(80_000) < 24 * seconds(10_000) + 0.1


PIECES = [*' \n()#{};,*=_ab"\\/', "__kernel", "void", "typedef", "ulong", "__global", "__attribute__"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_read_or_refused_in_words(source):
    try:
        read_program(source)
    except SourceError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("#define A(x, y) x##_##y + y\nA(b, c) A (1, 2)\n#undef A\nA(b, c)", "b_c + c 1_2 + 2\nA(b, c)"),
        ("#define T float\n#define TAKE(type, x) x = (type *)x##_off\nTAKE(T, y);", "y = (float *)y_off;"),
        ("#define f f_1\n#define g f\nf g f_1", "f_1 f_1 f_1"),
        ("#define A -1\n#define B A\nx = -A - B;", "x = - -1 - -1;"),
        ("#define E\nx = a +E+ b;", "x = a + + b;"),
        ("#define F(x) G(x) F(x)\n#define G(x) [x]\nF(F(2))", "[[2] F(2)] F([2] F(2))"),
        ("#define F() 3\nF() F", "3 F"),
        ("a /* b */ c // d\ne\\\nf", "a c\ne f"),
        ("#define W 3\n#if W > 2 && !defined(X) && (W * 2 == 6)\na\n#elif W\nb\n#else\nc\n#endif", "a"),
        ("#if 0\na\n#if 1\nb\n#endif\n#elif UNKNOWN\nc\n#else\nd\n#endif", "d"),
        ("#ifdef A\na\n#endif\n#ifndef A\nb\n#endif", "b"),
        ('#define LOOP(n) \\\n  _Pragma("unroll") \\\n for (;;) n;\nLOOP(2)', "#pragma unroll\nfor (;;) 2;"),
        (
            '#define P _Pragma("OPENCL EXTENSION cl_khr_x : enable")\nP int x;',
            "#pragma OPENCL EXTENSION cl_khr_x : enable\nint x;",
        ),
        (" # pragma   unroll   4\nx", "#pragma unroll 4\nx"),
        ("#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64  :enable\n#endif\nfloat x;", "float x;"),
        (
            "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64  :enable\n#endif\ndouble2 x;",
            "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\ndouble2 x;",
        ),
    ],
)
def test_what_is_left_of_a_source(source, wanted):
    def tokens(text):
        # Spaces only matter in directives, such as pragmas.
        return [
            line.split() if line.startswith("#") else re.findall(r"\w+|--|\+\+|\S", line) for line in text.split("\n")
        ]

    assert tokens(preprocess(source).strip()) == tokens(wanted)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("#include <x>\n", "directive #include"),
        ("#error no\n", "directive #error"),
        ("#ifdef __OPENCL_VERSION__\n#endif\n", "depends on the device's compiler"),
        ("#if __OPENCL_VERSION__ > 100\n#endif\n", "condition that cannot be parsed"),
        ("#if 1\n", "condition without #endif"),
        ("#endif\n", "#endif without a condition"),
        ("#if (1\n#endif\n", "brackets do not match"),
        ("#define A(x) #x\n", "unsupported operators"),
        ("#define A(x) x\nA(1, 2)\n", "passes 2 arguments to the macro A"),
        ("#define A(x) x\nA(1\n", "without a closing bracket"),
        ("#define A(x) x##+\nA(a)\n", "not a token"),
    ],
)
def test_what_exporters_refuse(source, words):
    with pytest.raises(SourceError, match=words):
        preprocess(source)


def test_a_program_of_a_file_stays_as_it_is():
    once = preprocess(SOURCE)
    assert preprocess(once) == once
    assert read_program(once) == read_program(SOURCE)
