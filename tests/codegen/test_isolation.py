"""If several pieces of code are joined in one source, the names that they define do not clash."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from optdb.codegen.kernels import PRELUDE
from optdb.codegen.kernels.isolation import isolate
from tests.opencl_device import runtime_context

UNDERSTOOD = {
    "KERNEL void k(GLOBAL_MEM float *a) { a[0] = f(a); }": ("k", ""),
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void k(__global int *a) {}": ("k", ""),
    "static inline float f(float x) { if (x > 0) { return x; } return -x; }": ("f", ""),
    "float *f(float *x);\nunsigned long g(void);": ("f g", ""),
    "typedef float real;\ntypedef struct { int a, b; } pair;\ntypedef float row[4];": ("real pair row", ""),
    "struct pair { int a; };\nstruct pair make(int a) { struct pair p = {a}; return p; }": ("pair make", ""),
    "__constant float table[] = {1, 2, 3}, last = 4;": ("table last", ""),
    "__constant int a = 3;;\n": ("a", ""),
    "#define T float\n#define AT(i) \\\n  a[i]\n  #  define U T": ("", "T AT U"),
    "#define T float\n#undef T\n#define T double": ("", "T"),
    "#define N 4\n#if N > 3\n#define M 1\n#else\n#define M 2\n#endif": ("", "N M"),
    "#ifdef cl_khr_fp64\n#define D 1\n#endif": ("", "D"),
    "#pragma OPENCL FP_CONTRACT OFF\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable": ("", ""),
    "int f() {\n    #pragma unroll 4\n    for (;;);\n}": ("f", ""),
    '// int g() { "\nint f() { return \'{\' + "}\\"{"[0]; } /* } */': ("f", ""),
    "#define JOINED(a, b) a##b\nint f() { return JOINED(4, 2); }": ("f", "JOINED"),
    "": ("", ""),
}

NOT_UNDERSTOOD = [
    '#include "mine.h"',
    "#line 3",
    "#error no",
    "#pragma pack(1)",
    "#pragma OPENCL EXTENSION cl_khr_fp64 : disable",
    "#undef KERNEL",
    "#define KERNEL __kernel",
    "float ga_float2half(float x) { return x; }",
    "#ifndef M_PI\n#define M_PI 3\n#endif",
    "#ifdef f\n#endif\nint f() { return 1; }",
    "#define f f\nint f() { return 1; }",
    "#if 1",
    "#endif\n#if 1",
    "#define A /* it goes\n on */ int",
    "FUNCTION(f) { return 1; }",
    "FUNCTION(f)\nint g() { return 1; }",
    "FUNCTION(f);",
    "float FUNCTION(f)(int x) { return x; }",
    "int f() { return 1; } /* oops",
    'int f() { return "; }',
    "int f() { return 1;",
    "int f() { return (1]; }",
    "int f() return 1; }",
    "int f() { return 1; } \\",
    "enum { A, B };",
    "nothing",
    "nothing;",
    "int f(int x) { float4 v; return v.x; } int x() { return 1; }",
]


@pytest.mark.parametrize("code", UNDERSTOOD)
def test_names_are_found(code):
    names, macros = UNDERSTOOD[code]
    found = isolate(code)
    assert found.names == set(names.split())
    assert found.macros == set(macros.split())


@pytest.mark.parametrize("code", NOT_UNDERSTOOD)
def test_what_is_not_understood_has_to_be_on_its_own(code):
    assert isolate(code) is None


FUSED = "KERNEL void k(GLOBAL_MEM {T} *x) {{ x[3] = x[0] * x[1] + x[2]; }}"


def joint(*codes):
    source = PRELUDE + "".join(isolate(code).between(f"__{i}") for i, code in enumerate(codes))
    return cl.Program(runtime_context().cl_context, source).build(cache_dir=False)


def launch(program, name, array):
    context = runtime_context()
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=array)
    cl.Kernel(program, name)(context.queue, (1,), (1,), buffer)
    cl.enqueue_copy(context.queue, array, buffer)
    return array


def test_codes_with_the_same_names_do_not_meet():
    codes = [
        f"""
        #define T {ctype}
        #define LOAD(x) ((x) * {n})
        typedef struct {{ T a; }} held;
        __constant int table[] = {{{n}, {n + 1}}};
        static T helper(T x) {{ held h = {{LOAD(x)}}; return h.a + table[1]; }}
        KERNEL void k(GLOBAL_MEM T *x) {{ x[0] = helper(x[0]); }}
        """
        for n, ctype in ((2, "float"), (5, "int"), (7, "double"))
        if ctype != "double" or runtime_context().profile.float64
    ]
    program = joint(*codes)
    for i, (dtype, want) in enumerate([("float32", 23), ("int32", 56), ("float64", 78)][: len(codes)]):
        assert launch(program, f"k__{i}", np.array([10], dtype))[0] == want


def test_macros_end_with_their_code():
    defining, using = (
        "#define T float\nKERNEL void a(GLOBAL_MEM T *x) {}",
        "KERNEL void b(GLOBAL_MEM int *T) { T[0] = 1; }",
    )
    assert launch(joint(defining, using), "b__1", np.zeros(1, "int32"))[0] == 1


@pytest.mark.slow
def test_rounding_is_what_the_code_says_and_not_what_another_one_says():
    off = "#pragma OPENCL FP_CONTRACT OFF\n"
    fused, rounded = FUSED.format(T="float"), off + FUSED.format(T="float")
    eps = np.finfo("float32").eps
    value = np.array([1 + eps, 1 - eps, -1, 7], "float32")

    def computed(program, name):
        return launch(program, name, value.copy())[3]

    alone = joint(fused), joint(rounded)
    together = joint(rounded, fused, rounded)
    assert computed(alone[1], "k__0") == 0
    assert computed(together, "k__0") == computed(together, "k__2") == 0
    assert computed(together, "k__1") == computed(alone[0], "k__0")


def test_lines_of_the_code_stay_as_they_are():
    code = "#define T float\n\n  KERNEL void k(GLOBAL_MEM T *x) {  }  // k"
    assert code in isolate(code).between("__1")
