"""Old names warn where they are used, and lead to the new ones."""

from __future__ import annotations

import warnings

import pytest

from optdb.deprecation import renamed, warn_renamed


class Profile:
    device_kind = "processor"


class Owner:
    flavour = renamed("flavour", "profile.device_kind")

    def __init__(self):
        self.profile = Profile()


def test_an_old_attribute_leads_to_the_new_one():
    with pytest.warns(FutureWarning, match=r"Owner\.flavour is now \.profile\.device_kind") as caught:
        assert Owner().flavour == "processor"
    assert caught[0].filename == __file__


def test_an_old_attribute_is_named_by_the_class_of_the_object():
    class Derived(Owner):
        pass

    with pytest.warns(FutureWarning, match=r"Derived\.flavour"):
        assert Derived().flavour == "processor"


def test_an_old_attribute_is_not_written_to():
    with pytest.raises(AttributeError):
        Owner().flavour = "accelerator"


def test_the_new_name_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Owner().profile.device_kind == "processor"


def test_the_warning_is_about_the_caller_of_what_has_an_old_name():
    def old():
        warn_renamed("old()", "new()")

    with pytest.warns(FutureWarning, match=r"^old\(\) is now new\(\), and goes away with the next release$") as caught:
        old()
    assert caught[0].filename == __file__
