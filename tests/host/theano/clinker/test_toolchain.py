"""Answers about the compiler are cached."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from optdb import files, user_cache
from optdb.host.theano.clinker import toolchain
from optdb.host.theano.clinker.locks import FileLock
from optdb.host.theano.clinker.toolchain import Toolchain


@pytest.fixture
def compiler(tmp_path):
    """The path of an executable script that pretends to be a compiler."""
    path = tmp_path / "cc"
    path.write_text("#!/bin/sh\necho libraries: =/a:/b\n")
    path.chmod(0o755)
    return path


class Finder:
    """A function that returns an answer, and counts its calls."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return self.answer


@pytest.mark.parametrize("answer", [0, "text", ["-march=x", "-mavx"], None, False])
def test_a_question_is_asked_once_for_all_processes(compiler, tmp_path, answer):
    find = Finder(answer)
    for _ in range(2):
        known = Toolchain(str(compiler), tmp_path / "kept")
        assert known.answer(["what"], find) == answer
        assert known.answer(["what"], find) == answer
    assert find.asked == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes().replace(b"-mavx", b"-mavy")),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"[" * 100_000),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text('{"answers": 1}'),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
    ids=["other flags", "cut", "deep", "a list", "no answers", "a FIFO"],
)
def test_damaged_answers_are_asked_again(compiler, tmp_path, damage):
    find = Finder(["-mavx"])
    Toolchain(str(compiler), tmp_path / "kept").answer(["what"], find)
    (path,) = (tmp_path / "kept").glob("*.json")
    damage(path)
    assert Toolchain(str(compiler), tmp_path / "kept").answer(["what"], find) == ["-mavx"]
    assert Toolchain(str(compiler), tmp_path / "kept").answer(["what"], find) == ["-mavx"]
    assert find.asked == 2


def test_another_question_is_asked(compiler, tmp_path):
    known = Toolchain(str(compiler), tmp_path / "kept")
    assert known.answer(["flags", "-O2"], Finder(1)) == 1
    assert known.answer(["flags", "-O3"], Finder(2)) == 2


def test_a_replaced_compiler_is_asked_again(compiler, tmp_path):
    Toolchain(str(compiler), tmp_path / "kept").answer(["version"], Finder("12"))
    os.utime(compiler, (1, 1))
    assert Toolchain(str(compiler), tmp_path / "kept").answer(["version"], Finder("13")) == "13"


@pytest.mark.parametrize("name", ["PATH", "LIBRARY_PATH", "CPATH"])
def test_in_another_environment_it_is_asked_again(compiler, tmp_path, monkeypatch, name):
    Toolchain(str(compiler), tmp_path / "kept").answer(["x"], Finder("before"))
    monkeypatch.setenv(name, "/somewhere")
    assert Toolchain(str(compiler), tmp_path / "kept").answer(["x"], Finder("after")) == "after"


def test_on_another_processor_it_is_asked_again(compiler, tmp_path, monkeypatch):
    Toolchain(str(compiler), tmp_path / "kept").answer(["march"], Finder("skylake"))
    monkeypatch.setattr(toolchain, "processor", lambda: "another")
    assert Toolchain(str(compiler), tmp_path / "kept").answer(["march"], Finder("zen")) == "zen"


def test_what_a_finder_raises_is_not_kept(compiler, tmp_path):
    known = Toolchain(str(compiler), tmp_path / "kept")

    def fail():
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        known.answer(["x"], fail)
    assert known.answer(["x"], Finder(1)) == 1


def test_nothing_is_kept_of_a_compiler_that_is_not_there(tmp_path):
    find = Finder(1)
    known = Toolchain("no-such-compiler", tmp_path / "kept")
    known.answer(["x"], find)
    known.answer(["x"], find)
    assert find.asked == 2


def test_answers_of_two_processes_are_both_kept(compiler, tmp_path):
    first, second = (Toolchain(str(compiler), tmp_path / "kept") for _ in range(2))
    first.answer(["a"], Finder("a"))
    second.answer(["b"], Finder("b"))
    find = Finder("other")
    third = Toolchain(str(compiler), tmp_path / "kept")
    assert third.answer(["a"], find) + third.answer(["b"], find) == "ab"


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_a_broken_file_is_as_good_as_none(compiler, tmp_path, content):
    known = Toolchain(str(compiler), tmp_path / "kept")
    known.answer(["x"], Finder(1))
    (file,) = (tmp_path / "kept").iterdir()
    file.write_text(content)
    assert Toolchain(str(compiler), tmp_path / "kept").answer(["x"], Finder(2)) == 2


def test_a_library_that_is_installed_or_replaced_is_seen(compiler, tmp_path):
    known = Toolchain(str(compiler), tmp_path / "kept")
    flags = ["-lthing", f"-L{tmp_path}"]
    before = known.library_stamps(flags)
    (tmp_path / "libthing.so").touch()
    installed = known.library_stamps(flags)
    (tmp_path / "libthing.so").write_text("new")
    assert len({str(before), str(installed), str(known.library_stamps(flags))}) == 3


def test_of_two_that_ask_at_once_one_waits_for_the_other(compiler, tmp_path):
    """Each thread has its own cache object, and therefore its own lock on the file, as separate processes have."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def find_slowly():
        is_asked.set()
        assert may_answer.wait(10)
        return "12"

    late = Finder("13")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Toolchain(str(compiler), tmp_path / "kept").answer, ["version"], find_slowly)
        assert is_asked.wait(10)
        second = pool.submit(Toolchain(str(compiler), tmp_path / "kept").answer, ["version"], late)
        with pytest.raises(TimeoutError):
            second.result(0.2)
        may_answer.set()
        assert (first.result(10), second.result(10)) == ("12", "12")
    assert late.asked == 0
    assert not list((tmp_path / "kept").glob("*.lock"))


def test_an_answer_may_take_another(compiler, tmp_path):
    known = Toolchain(str(compiler), tmp_path / "kept")
    assert known.answer(["both"], lambda: [known.answer(["one"], Finder(1)), 2]) == [1, 2]


def test_where_no_lock_can_be_had_each_asks(compiler, tmp_path, monkeypatch):
    monkeypatch.setattr(FileLock, "acquire", lambda self: (_ for _ in ()).throw(OSError(28, "no space left")))
    assert Toolchain(str(compiler), tmp_path / "kept").answer(["version"], Finder("12")) == "12"


def test_what_a_compiler_without_room_says_is_not_kept(compiler, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(user_cache, "_warned", set())
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(files, "disk_usage", lambda folder: SimpleNamespace(free=4096))
            find = Finder(False)
            assert Toolchain(str(compiler), tmp_path / "kept").answer(["links"], find) is False
            assert find.asked == 1
    (message,) = caplog.messages
    assert "No space left on device" in message
    assert "export TMPDIR=FOLDER" in message
    assert Toolchain(str(compiler), tmp_path / "kept").answer(["links"], Finder(True)) is True


def test_answers_that_cannot_be_kept_are_asked_again(compiler, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(user_cache, "_warned", set())
    (tmp_path / "kept").touch()  # a file where the folder should be
    find = Finder("12")
    for _ in range(2):
        assert Toolchain(str(compiler), tmp_path / "kept").answer(["version"], find) == "12"
    assert find.asked == 2
    (message,) = caplog.messages
    assert f"the compiler's answers cannot be saved in {tmp_path / 'kept'}" in message
    assert "export XDG_CACHE_HOME=FOLDER" in message
