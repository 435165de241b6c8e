"""OpenCL programs are built once, and raise errors if they do not build."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from dataclasses import replace

import pytest

from optdb.runtime import build
from optdb.runtime.build import BuildError, numbered
from optdb.runtime.library import cl, compilers_unheard
from tests.opencl_device import runtime_context


@pytest.mark.slow
def test_a_program_is_built_once_per_context_source_and_options():
    source = "__kernel void k(__global int *a) { a[0] = WIDTH; }"
    first = build.build(runtime_context(), source, ["-DWIDTH=1"])
    assert build.build(runtime_context(), source, ("-DWIDTH=1",)) is first
    assert build.build(runtime_context(), source, ["-DWIDTH=2"]) is not first
    with pytest.raises(BuildError, match=r"   1  __kernel void k"):
        build.build(runtime_context(), source)


def test_a_failed_build_is_tried_again():
    source = "this is no OpenCL C"
    for _ in range(2):
        with pytest.raises(BuildError):
            build.build(runtime_context(), source)


def test_options_are_named_where_they_are_refused():
    with pytest.raises(BuildError, match="-no-such-option"):
        build.build(runtime_context(), "__kernel void k() {}", ["-no-such-option"])


def test_a_compiler_that_warns_prints_nothing(capfd, recwarn):
    # Return a source that no driver has built before.
    warns = f"#warning so to say, {time.time_ns()}\n__kernel void k(__global int *a) {{ a[0] = 1.5f; }}"
    build.make(runtime_context(), warns)
    assert capfd.readouterr() == ("", "")
    assert not [one for one in recwarn if issubclass(one.category, cl.CompilerWarning)]
    with pytest.raises(BuildError, match="no_such_name"):
        build.make(runtime_context(), warns + "\n__kernel void n(__global int *a) { a[0] = no_such_name; }")


def test_what_a_compiler_says_besides_is_for_the_log(caplog):
    class Talkative:
        devices = (runtime_context().device,)

        def build(self, options, cache_dir):
            warnings.warn("a compiler's message", cl.CompilerWarning, stacklevel=1)
            return self

        def get_build_info(self, device, question):
            return "so to say\n"

    with caplog.at_level(logging.INFO, "optdb"), warnings.catch_warnings(record=True) as heard:
        build._built_quietly(Talkative(), (), "talk")
    assert not heard
    assert "talk was built on" in caplog.text
    assert "so to say" in caplog.text


def test_lines_of_ours_need_not_be_shown():
    assert numbered("ours\n\ntheirs\n") == "   1  ours\n   2\n   3  theirs"
    assert numbered("ours\n\ntheirs\n", own_lines=2) == "   3  theirs"
    with pytest.raises(BuildError, match="the kernels of an op does not build") as caught:
        build.build(runtime_context(), "// ours\nno C", name="the kernels of an op", own_lines=1)
    assert "// ours" not in str(caught.value)
    assert "   2  no C" in str(caught.value)
    assert caught.value.source == "// ours\nno C"


def test_warnings_are_heard_again_after_the_last_of_several_builds():
    before = list(warnings.filters)
    with compilers_unheard():
        first = threading.Event()

        def other():
            with compilers_unheard():
                first.set()
                last.wait(60)

        last = threading.Event()
        thread = threading.Thread(target=other)
        thread.start()
        assert first.wait(60)
    with warnings.catch_warnings(record=True) as heard:
        warnings.warn("a compiler's message", cl.CompilerWarning, stacklevel=1)
    assert not heard
    last.set()
    thread.join()
    assert list(warnings.filters) == before


PTX = b""".version 8.7
.target sm_90
.address_size 64
.visible .entry product() {
\t// begin inline asm
\t//@ wgmma.fence.sync.aligned;
\t// end inline asm
\tret;
}
\0"""


def test_comments_of_ptx_become_instructions():
    lines = build.with_instructions(PTX).decode().splitlines()
    assert lines[1] == ".target sm_90a"
    assert "\twgmma.fence.sync.aligned;" in lines
    assert "\t// begin inline asm" in lines
    again = "\n".join(lines).replace("\twgmma", "\t//@ wgmma").encode()
    assert build.with_instructions(again).decode().splitlines() == lines


@pytest.mark.parametrize(
    ("binary", "says"), [(PTX.replace(b"@ ", b" "), "lacks the comments"), (b"\x7fELF\x02\xff\0", "is not PTX")]
)
def test_what_has_no_such_comments_does_not_build(monkeypatch, binary, says):
    context = runtime_context()
    profile = replace(context.profile, quirks=replace(context.profile.quirks, takes_ptx=True))
    monkeypatch.setattr(context, "profile", profile)
    source = """__kernel void k(__global int *a) {
        const __constant char *text = "//@ an instruction;";
        a[0] = text[0];
    }"""
    turn = build.with_instructions
    monkeypatch.setattr(build, "with_instructions", lambda of_driver: turn(binary))
    with pytest.raises(BuildError, match=says):
        build.make(context, source)


def test_such_comments_mean_nothing_elsewhere():
    context = runtime_context()
    program = build.make(context, "__kernel void k(__global int *a) { //@ a word\n a[0] = 1; }")
    assert "//@ a word" in build.source_of(context, program)
