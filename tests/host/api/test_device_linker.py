"""`DeviceLinker` delegates functions to the backend of a device."""

from __future__ import annotations

import pytest
import theano
import theano.tensor as tt

from optdb.host.api import device_linker


@pytest.fixture
def no_backend(monkeypatch):
    monkeypatch.setattr(device_linker, "_backend", None)


def test_a_backend_links_what_the_linker_is_given(no_backend):
    linked = []

    def link(linker, input_storage, output_storage):
        linked.append(linker)
        # The host computes a function that is linked while another function is being linked.
        return linker.make_thunk(input_storage, output_storage)

    device_linker.register_backend(link)
    x = tt.dvector()
    function = theano.function([x], x + 1, mode=theano.Mode(device_linker.DeviceLinker("dev7"), None))
    assert function([1]) == [2]
    assert [linker.device for linker in linked] == ["dev7"]


def test_without_a_backend_the_error_says_how_to_get_one(no_backend):
    x = tt.dvector()
    with pytest.raises(RuntimeError, match="register_backend"):
        theano.function([x], x + 1, mode=theano.Mode("opencl", None))
