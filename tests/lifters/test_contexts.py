"""Any kind of device can have contexts with names."""

from __future__ import annotations

import threading
import time

import pytest

from optdb.flags import context_pairs
from optdb.lifters.contexts import ContextNotDefined, Contexts


class Made:
    """A context without hardware."""

    def __init__(self, spec):
        self.spec = spec


@pytest.fixture
def contexts():
    known = Contexts(Made)
    known.register("dev0", "first")
    known.register("dev1", "second")
    return known


def test_contexts_are_made_once_when_needed():
    made = []
    known = Contexts(lambda spec: made.append(spec) or Made(spec))
    known.register("dev0", "first")
    assert made == []
    assert known.get("dev0") is known.get("dev0")
    assert made == ["first"]


def test_threads_get_the_same_context():
    def slowly(spec):
        time.sleep(0.05)
        return Made(spec)

    known = Contexts(slowly)
    known.register("dev0", "first")
    got = []
    threads = [threading.Thread(target=lambda: got.append(known.get("dev0"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len(set(map(id, got))) == 1


def test_what_cannot_be_made_may_be_made_later():
    broken = [True]

    def make(spec):
        if broken:
            raise RuntimeError("not now")
        return Made(spec)

    known = Contexts(make)
    known.register("dev0", "first")
    with pytest.raises(RuntimeError, match="not now"):
        known.get("dev0")
    broken.clear()
    assert known.get("dev0").spec == "first"


def test_none_is_the_default(contexts):
    assert contexts.default is None
    with pytest.raises(ContextNotDefined, match=r"no default context.*\nThe cure: .*optdb\.device=opencl"):
        contexts.get()
    contexts.default = "dev1"
    assert contexts.resolve(None) == "dev1"
    assert contexts.get(None) is contexts.get("dev1")
    contexts.default = "dev0"
    assert contexts.get(None) is contexts.get("dev0")
    contexts.default = None
    with pytest.raises(ContextNotDefined):
        contexts.get()


def test_unknown_names(contexts):
    for look in (contexts.get, contexts.resolve, contexts.forget, lambda name: setattr(contexts, "default", name)):
        with pytest.raises(
            ContextNotDefined,
            match=r"dev2: no such context; there is dev0, dev1\.\nThe cure: .*optdb\.contexts=dev2->opencl0:0",
        ):
            look("dev2")
    assert "dev2" not in contexts
    assert "dev1" in contexts
    with pytest.raises(ContextNotDefined, match=r"there is none\.\nThe cure: .*mine=a->b"):
        Contexts(Made, hint="mine=a->b").get("dev0")


def test_a_name_stands_for_one_device(contexts):
    contexts.register("dev0", "first")
    with pytest.raises(
        ValueError, match="the context dev0 is already first; forget it before it is registered as third"
    ):
        contexts.register("dev0", "third")
    contexts.default = "dev0"
    old = contexts.get("dev0")
    contexts.forget("dev0")
    assert contexts.default is None
    assert contexts.names() == ["dev1"]
    contexts.register("dev0", "third")
    assert contexts.get("dev0") is not old


@pytest.mark.parametrize("name", [None, "cpu"])
def test_names_with_a_meaning_are_refused(contexts, name):
    with pytest.raises(ValueError, match="is reserved"):
        contexts.register(name, "first")


def test_names_are_found_by_what_is_in_the_context(contexts):
    assert contexts.name_of(lambda context: True) is None  # no context has been created yet
    contexts.get("dev0")
    contexts.get("dev1")
    assert contexts.name_of(lambda context: context.spec == "second") == "dev1"


def test_flags_are_read_when_a_name_is_looked_for():
    filled = []

    def fill(known):
        filled.append(known.names())
        known.register("dev0", "first")
        known.default = "dev0"

    known = Contexts(Made, fill)
    assert filled == []
    assert known.names() == ["dev0"]
    assert known.get().spec == "first"
    assert filled == [[]]
    known.clear()
    assert known.default == "dev0"
    assert len(filled) == 2


def test_flags_that_cannot_be_read_are_read_again():
    broken = [True]

    def fill(known):
        if broken:
            raise ValueError("bad flags")
        known.register("dev0", "first")

    known = Contexts(Made, fill)
    with pytest.raises(ValueError, match="bad flags"):
        known.names()
    broken.clear()
    assert known.names() == ["dev0"]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("dev0->opencl0:0", [("dev0", "opencl0:0")]),
        (" a -> opencl1:0[1/2] ; b->GeForce GTX; ", [("a", "opencl1:0[1/2]"), ("b", "GeForce GTX")]),
    ],
)
def test_parse(text, pairs):
    assert context_pairs(text) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dev0", r"'dev0' is not name->device; write THEANO_FLAGS='optdb.contexts=dev0->opencl0:0"),
        ("->opencl", "is not name->device"),
        ("dev0->", "is not name->device"),
        ("a->opencl;a->opencl0:1", "a is given twice"),
        ("cpu->opencl", "cpu is the host"),
        ("a->opencl0", "opencl<platform>:<device>"),
        ("a->opencl:1", "opencl<platform>:<device>"),
        ("a->b->c", "a device is opencl"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(ValueError, match=message):
        context_pairs(text)
