"""Kernel bodies are moved to functions; bodies that the scanner does not understand stay unchanged."""

from __future__ import annotations

import pytest

from optdb.codegen.kernels.bodies import _read

SUMS = """
typedef float number;
static number twice(number x) { return 2 * x; }
__attribute__((reqd_work_group_size(64, 1, 1)))
KERNEL void sums(ga_size n, const GLOBAL_MEM number *x, GLOBAL_MEM number *y)
{
    LOCAL_MEM number seats[64];
    __local int tiles[2][4 + 1] __attribute__((aligned(16)));
    seats[LID_0] = GID_0 * 64 + get_local_id(0) < n ? twice(x[get_global_id(0)]) : 0;
    local_barrier();
    tiles[0][LID_0 % 5] = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LID_0 == 0) y[get_group_id(0)] = seats[0];
}
OUTLINED_KERNEL void other(GLOBAL_MEM number *y) { y[get_global_id(1)] = get_num_groups(2); }
"""


def test_local_memory_is_a_struct_and_ids_are_parameters():
    bodies = _read(SUMS)
    sums, other = bodies.kernels["sums"], bodies.kernels["other"]
    assert sums.synchronizes and sums.may_be_team and not other.synchronizes
    assert sums.shared == ("number seats[64] ;", "int tiles[2][4 + 1] __attribute__((aligned(16)));")
    queries = ["get_local_id 0", "get_group_id 0", "get_local_id 0", "get_global_id 0"]
    assert sorted(query for _, query in sums.queries) == sorted([*queries, "get_group_id 0"])
    assert [sums.reads_only(index) for index in range(3)] == [False, True, False]
    code = bodies.code(["sums"], "", False, {"sums": "/* next */"})
    assert "__local number *seats = its_locals->seats;" in code
    assert "__local int (*tiles)[4 + 1] = its_locals->tiles;" in code
    assert "KERNEL" not in code and "reqd_work_group_size" not in code and "other" not in code
    assert "static number twice(number x)" in code and code.rstrip().endswith("/* next */")


def test_teams_meet_by_themselves():
    code = _read(SUMS).code(["sums", "other"], "INLINE ", True, {"sums": "", "other": ""})
    assert code.count("its_meet(its_team, its_size);") == 2 and "barrier" not in code
    assert "void sums_body(const uint its_team, const uint its_size, const size_t" in code
    assert "INLINE static void other_body(const size_t its_get_global_id_1" in code


@pytest.mark.parametrize(
    "code",
    [
        "KERNEL void f(GLOBAL_MEM float *x) { x[get_global_offset(0)] = 1; }",
        "KERNEL void f(GLOBAL_MEM float *x) { x[get_work_dim()] = 1; }",
        "KERNEL void f(GLOBAL_MEM float *x) { uint i = 0; x[get_global_id(i)] = 1; }",
        "KERNEL void f(GLOBAL_MEM float *x) { LOCAL_MEM float s[4]; x[0] = sizeof(s); }",
        "KERNEL void f(GLOBAL_MEM float *x) { LOCAL_MEM float s[4]; g(&s); }",
        "KERNEL void f(GLOBAL_MEM float *x, LOCAL_MEM_ARG float *s) { x[0] = s[0]; }",
        "static int at() { return GID_0; }\nKERNEL void f(GLOBAL_MEM float *x) { x[at()] = 1; }",
        "#define AT get_group_id(0)\nKERNEL void f(GLOBAL_MEM float *x) { x[AT] = 1; }",
        "#define F(name) KERNEL void name(GLOBAL_MEM float *x) { x[0] = 1; }\nF(f)",
        "KERNEL void f(GLOBAL_MEM float *x) { x[0] = 1;",
    ],
)
def test_what_is_not_understood_has_no_body(code):
    assert "f" not in _read(code).kernels


def test_a_kernel_is_together_with_the_functions_that_it_calls():
    code = "static void meet() { barrier(CLK_LOCAL_MEM_FENCE); }\nKERNEL void f(GLOBAL_MEM float *x) { meet(); }"
    (body,) = _read(code).kernels.values()
    assert body.synchronizes and not body.may_be_team
