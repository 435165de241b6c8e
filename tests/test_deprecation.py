"""Old names warn where they are used, and lead to the new ones."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
import warnings

import pytest

from optdb.codegen.kernels import Kernel
from optdb.deprecation import renamed, renamed_fields, renamed_names, warn_renamed


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


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("made_for_a_test")
    made.DeviceInfo = Profile
    made.__getattr__ = renamed_names("made_for_a_test", {"Row": "DeviceInfo"})
    monkeypatch.setitem(sys.modules, "made_for_a_test", made)
    return made


def test_an_old_name_of_a_module_leads_to_the_new_one(module):
    with pytest.warns(FutureWarning, match=r"made_for_a_test\.Row is now made_for_a_test\.DeviceInfo") as caught:
        assert module.Row is Profile
    assert caught[0].filename == __file__


def test_an_old_name_of_a_module_can_be_imported(module):
    with pytest.warns(FutureWarning, match=r"made_for_a_test\.Row") as caught:
        from made_for_a_test import Row
    assert Row is Profile
    assert caught[0].filename == __file__


def test_other_names_of_a_module_are_not_there(module):
    with pytest.raises(AttributeError, match="module 'made_for_a_test' has no attribute 'Rows'"):
        module.Rows  # noqa: B018


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("optdb.runtime.devices", "Row", "DeviceInfo"),
        ("optdb.runtime.devices", "trouble", "unsupported_reason"),
    ],
)
def test_public_names_that_changed_warn(module, old, new):
    module = importlib.import_module(module)
    with pytest.warns(FutureWarning, match=rf"{old} is now {module.__name__}\.{new}"):
        assert getattr(module, old) is getattr(module, new)


@renamed_fields(flavour="device_kind")
@dataclasses.dataclass(frozen=True)
class Described:
    name: str
    device_kind: str = "processor"


def test_an_old_field_is_accepted_and_read():
    with pytest.warns(FutureWarning, match=r"Described\(flavour=\.\.\.\) is now Described\(device_kind=") as caught:
        described = Described("x", flavour="accelerator")
    assert caught[0].filename == __file__
    assert described == Described("x", device_kind="accelerator")
    with pytest.warns(FutureWarning, match=r"Described\.flavour is now \.device_kind"):
        assert described.flavour == "accelerator"


def test_an_old_field_is_replaced():
    with pytest.warns(FutureWarning, match=r"Described\(flavour="):
        assert dataclasses.replace(Described("x"), flavour="accelerator").device_kind == "accelerator"


def test_new_fields_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dataclasses.replace(Described("x"), device_kind="accelerator").device_kind == "accelerator"
        assert Described("x", "accelerator").device_kind == "accelerator"


def test_fields_that_never_were_are_errors():
    with pytest.raises(TypeError, match="kind"):
        Described("x", kind="accelerator")


def test_an_old_word_of_kernels():
    with pytest.warns(FutureWarning, match="CHUNK_KERNEL is now OUTLINED_KERNEL"):
        kernel = Kernel("CHUNK_KERNEL void nothing(ga_size n) {}", "nothing", ["uint64"])
    assert kernel.code == "OUTLINED_KERNEL void nothing(ga_size n) {}"
