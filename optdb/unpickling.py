"""Restores pickled simulators; if PyOpenCL or a device is missing, the error contains the simulator's functions."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from optdb.runtime.errors import DeviceError

if TYPE_CHECKING:
    from optdb.host.theano.functions.compiled import Function

__all__ = ["SimulatorNotRestored", "restore"]


class SimulatorNotRestored(DeviceError):
    """Raised if a simulator is unpickled on a machine without a device for it.

    Parameters
    ----------
    why : str
        The problem and how to fix it.
    functions : dict
        The functions by method name; the simulator's own function is named ``'__call__'``.
    values : list
        The values of the shared variables in the simulator, in the order of the functions' shared variables.

    Attributes
    ----------
    functions : dict
        The parameter `functions`.
    """

    def __init__(self, why: str, functions: dict[str, Function], values: list[Any]) -> None:
        super().__init__(why)
        self.functions = functions
        self._values = values

    def sync_to_theano(self) -> None:
        """Copy the simulator's shared values into the functions, which still hold the values from Theano."""
        for storage, value in zip(_shared_storages(self.functions), self._values, strict=True):
            storage[0] = value

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.functions, self._values)


def restore(
    rebuild: str, functions: dict[str, Function], device: str, values: list[Any], method_inputs: dict[str, list[Any]]
) -> Any:
    """Restore a simulator from the content of its pickle.

    `rebuild` names the function that rebuilds the simulator from the other parameters, as ``'module:name'``; importing
    this module may need PyOpenCL. `values` contains the values of the shared variables, and `method_inputs` the values
    of inputs that calls update. Raise `SimulatorNotRestored` if there is no device at all, and RuntimeError if Theano's
    flags forbid unpickling functions.
    """
    if any(function is None for function in functions.values()):
        raise RuntimeError(
            "a simulator cannot be unpickled without its functions, which Theano omits.\n"
            "The cure: THEANO_FLAGS=unpickle_function=True"
        )
    try:
        return pkgutil.resolve_name(rebuild)(functions, device, values, method_inputs)
    except DeviceError as error:
        raise SimulatorNotRestored(
            f"{error}\n"
            "The functions of the simulator are in this error's attribute `functions`, and run without a device; "
            "its sync_to_theano() copies the simulator's shared values to them.",
            *(functions, values),
        ) from error


def _shared_storages(functions: dict[str, Function]) -> list[list[Any]]:
    """Return Theano's storage for each shared variable, without duplicates."""
    storages: dict[int, list[Any]] = {}
    for function in functions.values():
        for spec, container in zip(function.maker.inputs, function.input_storage, strict=True):
            if spec.shared:
                storages.setdefault(id(container.storage), container.storage)
    return list(storages.values())
