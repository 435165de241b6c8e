"""Attributes that were replaced together can be restored in any order."""

from __future__ import annotations

import itertools

import pytest

from optdb.host.api.patching import Patch, PatchGroup, Wrapper, applied, groups
from tests.processes import output, python


def make_host():
    class Host:
        def speak(self):
            return "host"

        @staticmethod
        def count():
            return 1

    return Host


def saying(word):
    def wrap(beneath):
        return lambda self: f"{beneath(self)} {word}"

    return wrap


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_patches_go_in_any_order(order):
    host = make_host()
    stock = vars(host)["speak"]
    words = ["a", "b", "c"]
    patches = [Wrapper(host, "speak", saying(word), "a test") for word in words]
    for patch in patches:
        patch.install()
    left = list(words)
    for number in order:
        assert host().speak() == " ".join(["host", *left])
        patches[number].uninstall()
        left.remove(words[number])
    assert vars(host)["speak"] is stock


def test_what_replaces_hides_what_is_below_until_it_goes():
    host = make_host()
    below = Wrapper(host, "speak", saying("below"), "a test")
    replacing = Patch(host, "speak", lambda self: "other", "a test")
    above = Wrapper(host, "speak", saying("above"), "a test")
    for patch in (below, replacing, above):
        patch.install()
    assert host().speak() == "other above"
    below.uninstall()
    assert host().speak() == "other above"
    replacing.uninstall()
    assert host().speak() == "host above"
    below.install()
    assert host().speak() == "host above below"


def test_twice_is_once():
    host = make_host()
    patch = Wrapper(host, "speak", saying("once"), "a test")
    patch.install(), patch.install()
    assert host().speak() == "host once"
    patch.uninstall(), patch.uninstall()
    assert host().speak() == "host"


def test_an_attribute_that_is_inherited_is_not_left_behind():
    class Child(make_host()):
        pass

    with applied(Wrapper(Child, "speak", saying("child"), "a test")):
        assert Child().speak() == "host child"
    assert "speak" not in vars(Child)


def test_a_static_method_stays_one():
    host = make_host()
    double = Wrapper(host, "count", lambda count: staticmethod(lambda: 2 * count()), "a test")
    ten = Wrapper(host, "count", lambda count: staticmethod(lambda: 10 + count()), "a test")
    with applied(double):
        ten.install()
        assert host.count() == host().count() == 12
    assert host.count() == 11
    ten.uninstall()
    assert host.count() == 1


def test_what_somebody_else_put_on_top_stays():
    host = make_host()
    ours = Wrapper(host, "speak", saying("ours"), "a test")
    ours.install()
    beneath = host.speak
    host.speak = lambda self: f"{beneath(self)} foreign"
    with applied(Wrapper(host, "speak", saying("later"), "a test")):
        assert host().speak() == "host ours foreign later"
    ours.uninstall()
    assert host().speak() == "host ours foreign"


def test_an_error_in_the_block_puts_things_back():
    host = make_host()
    with pytest.raises(KeyError), applied(Wrapper(host, "speak", saying("x"), "a test")):
        raise KeyError
    assert host().speak() == "host"


def test_groups_are_listed_with_reasons():
    import optdb.opencl  # noqa: F401

    listed = groups()
    assert [group.title for group in listed] == sorted(group.title for group in listed)
    for group in listed:
        assert group.in_force
        assert group.undo
        for patch in group.patches:
            assert patch.reason
            assert hasattr(patch.owner, patch.name) or not isinstance(patch, Wrapper)


def test_a_group_is_taken_away_in_the_opposite_order():
    host = make_host()
    group = PatchGroup("A test", "in a test", "nothing", [Wrapper(host, "speak", saying(w), "a test") for w in "ab"])
    try:
        assert not group.installed
        group.install()
        assert group.installed
        assert host().speak() == "host a b"
        group.uninstall()
        assert host().speak() == "host"
    finally:
        groups.__globals__["_groups"].remove(group)


@pytest.mark.slow
def test_what_is_turned_off_is_undone():
    output(
        """
        import optdb, theano
        from optdb.host.api.patching import groups
        x = theano.tensor.vector()
        with optdb.enable(), optdb.cache.install():
            theano.function([x], x * 2 + 1, mode=theano.Mode(linker="py", optimizer="fast_run"))
            during = {group.title for group in groups() if group.installed}
        lasting = {group.title for group in groups() if group.installed}
        assert {"Rewrite engine", "Singleton ops", "Singleton Scans"} <= during - lasting
        assert not [group.title for group in groups() if group.installed and group.undo.startswith("optdb.")]
    """,
        flags="optdb.clinker=auto",
    )


@pytest.mark.slow
def test_the_doctor_lists_them():
    done = python("-m", "optdb", "doctor", "--patches")
    assert done.returncode == 0, done.stderr
    for word in ("Rewrite engine", "FunctionMaker.create", "optdb.disable()", "EquilibriumDB.query"):
        assert word in done.stdout
