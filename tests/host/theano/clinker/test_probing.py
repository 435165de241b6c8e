"""Cached answers about the compiler have keys with everything that the answers depend on, and nothing else."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from optdb.host.theano.clinker import probing


class Answers:
    """A cache that keeps answers in memory instead of on disk."""

    def __init__(self):
        self.known = {}

    def answer(self, question, find):
        key = json.dumps(question)
        if key not in self.known:
            self.known[key] = find()
        return self.known[key]


@pytest.mark.parametrize(
    ("later", "times"), [("-O3 -Wno-c++11-narrowing", 1), ("-O3 -march=x86-64", 2), ("-mtune=generic", 2)]
)
def test_only_flags_that_choose_a_processor_change_what_native_means(monkeypatch, later, times):
    answers, asked = Answers(), []
    monkeypatch.setattr(probing, "toolchain", lambda name: answers)
    compiler = SimpleNamespace(march_flags=None)
    gcc = SimpleNamespace(cxxflags="-O3")
    cmodule = SimpleNamespace(
        config=SimpleNamespace(cxx="g++", gcc=gcc), GCC_compiler=compiler, std_lib_dirs=lambda: ["/usr/lib"]
    )

    def compile_args(march_flags=True):
        if compiler.march_flags is None:
            asked.append(gcc.cxxflags)
            compiler.march_flags = ["-march=native"]
        return compiler.march_flags

    remembered = probing._remembering_march(cmodule, compile_args)
    for gcc.cxxflags in ("-O3", later):
        compiler.march_flags = None  # another process
        assert remembered() == ["-march=native"]
    assert len(asked) == times
