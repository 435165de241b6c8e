"""The parameters of kernels are read from declarations in their code."""

import pytest

from optdb.codegen.kernels import ARRAY, BUFFER, LOCAL, SIZE, SSIZE, SSIZES, Kernel
from optdb.codegen.kernels.kernel import expand_arrays

SCALE = """
KERNEL void scale(ga_size n, ga_double by, ARRAY const ga_double *x, ga_ssize step,
    ARRAY ga_half*y, GLOBAL_MEM ga_int *z, LOCAL_MEM_ARG ga_int *tile, long16 sizes)
{
    y[0] = x[n] * by;
}
"""


def test_code_declares_name_params_and_flags():
    kernel = Kernel(SCALE)
    assert kernel.name == "scale"
    double = Kernel(SCALE, "scale", ["float64"]).params[0]
    assert kernel.params == (SIZE, double, ARRAY, SSIZE, ARRAY, BUFFER, LOCAL, SSIZES)
    assert set(kernel.flags) == {"GA_USE_DOUBLE", "GA_USE_HALF", "GA_USE_SMALL"}


def test_arrays_begin_at_their_offsets():
    code = " ".join(Kernel(SCALE).code.split())
    assert "GLOBAL_MEM const ga_double *x, ga_size x_off, ga_ssize step, GLOBAL_MEM ga_half *y, ga_size y_off" in code
    assert "{ x = (GLOBAL_MEM const ga_double *)((GLOBAL_MEM char *)x + x_off);" in code
    assert "y = (GLOBAL_MEM ga_half *)((GLOBAL_MEM char *)y + y_off); y[0]" in code
    assert "z_off" not in code and "tile_off" not in code


def test_arrays_may_be_restricted():
    code = " ".join(expand_arrays("KERNEL void k(ARRAY ga_int *restrict x) {}").split())
    assert "GLOBAL_MEM ga_int *restrict x, ga_size x_off) { x = (GLOBAL_MEM ga_int *)" in code
    assert Kernel(code).params == (ARRAY,)


def test_offsets_that_are_written_out_are_those_of_arrays():
    code = "KERNEL void k(GLOBAL_MEM ga_int *a, ga_size a_off, ga_size b_off) {}"
    assert Kernel(code).params == (ARRAY, SIZE)
    assert expand_arrays(code) == code


def test_types_may_be_defined():
    code = "#define T ga_float\nOUTLINED_KERNEL void k(T by, ARRAY T *x) {}"
    assert [repr(param) for param in Kernel(code).params] == ["float32", "*"]


def test_all_kernels_of_a_code():
    code = "KERNEL void first(ARRAY ga_int *x) {}\nKERNEL void second(ga_size n, ARRAY ga_int *x) {}"
    first, second = Kernel.all_of(code)
    assert (first.name, first.params) == ("first", (ARRAY,))
    assert (second.name, second.params) == ("second", (SIZE, ARRAY))
    assert first.code == second.code


@pytest.mark.parametrize(
    ("code", "name", "told"),
    [
        ("void f() {}", None, "declares no kernel"),
        ("KERNEL void f(ga_size n) {} KERNEL void g(ga_size n) {}", None, r"f and g, so Kernel\(code, name\)"),
        ("KERNEL void f(ga_size n) {}", "g", "the code of kernel g does not declare it"),
        ("KERNEL void f(strange n) {}", None, "kernel f declares 'strange n', which cannot be a parameter"),
        ("KERNEL void f() {}", None, "kernel f declares '', which cannot be a parameter"),
    ],
)
def test_what_cannot_be_read_is_told(code, name, told):
    with pytest.raises(ValueError, match=told):
        Kernel(code, name)
