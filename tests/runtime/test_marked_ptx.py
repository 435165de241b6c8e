"""PTX with marked instructions: what becomes of a program's binary, and programs that are built from it."""

from __future__ import annotations

import pytest

from optdb.runtime import build as building
from optdb.runtime.build import BuildError, build, source_of
from optdb.runtime.context import Context
from optdb.runtime.marked_ptx import DIRECTIVE_MARK, MARK, as_instructions, is_marked

PTX = f"""
.version 9.0
.target sm_90
.address_size 64

.visible .entry first(
\t.param .u64 first_param_0
)
.reqntid 32, 1, 1
{{
\t// begin inline asm
\t{MARK} {{
\t// end inline asm
}}

.visible .entry second(
\t.param .u64 second_param_0
)
{{
\t// begin inline asm
\t{{ mov.b32 %r1, %r1; }}
{{
\t// end inline asm
\t// begin inline asm
\t{DIRECTIVE_MARK} .maxnreg 128
\t// end inline asm
\t// begin inline asm
{MARK} wgmma.fence.sync.aligned;
{MARK} wgmma.commit_group.sync.aligned;
\t// end inline asm
}}
"""


def test_marked_instructions_come_into_force():
    text = as_instructions(PTX.encode()).decode()
    assert "\n.target sm_90a\n" in text and MARK not in text and DIRECTIVE_MARK not in text
    assert "\n\t {\n" in text
    assert "\n wgmma.fence.sync.aligned;\n wgmma.commit_group.sync.aligned;\n" in text


def test_directives_stand_before_the_body_of_their_kernel():
    first, second = as_instructions(PTX.encode()).decode().split(".visible .entry second")
    assert ".maxnreg" not in first
    assert second.startswith("(\n\t.param .u64 second_param_0\n)\n .maxnreg 128\n{\n")


@pytest.mark.parametrize(
    "ptx",
    [
        PTX.replace(MARK, "// "),
        PTX.replace("sm_90\n", "sm_86\n"),
        PTX.replace("sm_90\n", "sm_90a\n"),
        "\x7fELF",
    ],
)
def test_no_other_binaries(ptx):
    assert as_instructions(ptx.encode()) is None


def test_which_sources_are_marked():
    assert is_marked(f'asm volatile("{MARK} wgmma.fence.sync.aligned;");')
    assert not is_marked('asm volatile("mma.sync");')


def test_binaries_without_marks_are_refused():
    source = f"/* {MARK} */ __kernel void f(__global float *x) {{ x[0] = 1; }}"
    with pytest.raises(BuildError, match="is not PTX with marked instructions"):
        build(Context("opencl"), source)


def test_programs_are_built_from_the_changed_binary(monkeypatch):
    context, source = Context("opencl"), f"/* {MARK} 2 */ __kernel void f(__global float *x) {{ x[0] = 2; }}"
    changed = []

    def unchanged(binary):
        changed.append(binary)
        return binary

    monkeypatch.setattr(building, "as_instructions", unchanged)
    program = build(context, source)
    assert len(changed) == 1
    # A binary does not hold its source.
    assert source_of(context, program) == source
    assert [kernel.function_name for kernel in program.all_kernels()] == ["f"]
