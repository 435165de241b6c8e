"""Tests of Theano and PyTensor that may fail with optdb enabled, each with the reason why that is acceptable.

Only tests that assert details of stock's procedure (an exact phase, a class name, a count of its own passes) belong
here, never tests that assert a value or the quality of a graph. A listed test that passes is shown, so that its line
can be removed.
"""

from __future__ import annotations

EXPECTED: dict[str, str] = {
    **dict.fromkeys(
        [
            f"theano/scan_module/tests/test_scan.py::T_Scan::{test}"
            for test in ("test_alloc_inputs1", "test_inner_storage_leak", "test_pushout", "test_pushout_dot")
        ],
        "with the device's linker: looks for nodes and storage in the function that the host runs for each step, and a "
        "loop on the device has none",
    ),
    **dict.fromkeys(
        [
            f"theano/tensor/tests/test_sharedvar.py::test_shared_options::{test}"
            for test in ("test_return_internal_type", "test_shared_dont_alias")
        ],
        "with the device's linker: writes into the array that get_value(borrow=True) returns, and asserts that a "
        "function sees that without set_value, which the test calls a feature that the contract does not require",
    ),
    "theano/tensor/tests/test_sharedvar.py::test_shared_options::test_shared_do_alias": "with the device's linker: "
    "writes into the array that was passed to theano.shared(..., borrow=True), after a first call has copied it to the "
    "device, and asserts that the next call sees that; the device keeps its copy until set_value(array, borrow=True), "
    "and the test calls the aliasing a feature that the contract does not require",
    "theano/tensor/tests/test_basic.py::test_join_inplace": "with the device's linker: asserts that a borrowed result "
    "is the argument's own object; one that a device computes comes home in another array, with the same values",
    "theano/tensor/tests/test_extra_ops.py::TestSearchsortedOp::test_searchsortedOp_on_right_side": "with the device's "
    "linker: searches in a vector that is not sorted, for which NumPy leaves the result open",
    "theano/gof/tests/test_vm.py::test_c_thunks": "with tiers: asserts that a function that has just been compiled has "
    "thunks of C code, which arrive later; after optdb.wait it has them",
    "theano/gof/tests/test_vm.py::test_no_recycling": "with tiers: compares the modules of C thunks of two functions "
    "that have just been compiled; after optdb.wait they are one module",
    "tests/graph/test_features.py::TestPickleRoundTrip::test_execute_callbacks_after_pickle": "with PyTensor "
    "rewritten by optdb: asserts that the seconds of each feature are kept, which is done only under config.profile",
    "theano/tests/test_printing.py::test_scan_debugprint5": "with the cache: compares printed text, where an unnamed "
    "Elemwise(second) has no name; it is the one that theano.tensor.second names",
}

#: Tests that may fail with a newer Python, NumPy or SciPy although they pass with the oldest (``--reference``).
EXPECTED_BETWEEN_VERSIONS: dict[str, str] = {
    "theano/compile/tests/test_function_module.py::T_picklefunction::test_broken_pickle_with_shared": "the test sets "
    "an attribute of a pickler written in C, which Python 3.13 does not allow",
    "theano/tensor/tests/test_basic.py::TriGammaTester::test_good": "SciPy, which the test asks what to expect, gives "
    "float64 for uint8 since results do not depend on values; Theano's is float32, as ever",
    **dict.fromkeys(
        [
            f"theano/tensor/tests/test_basic.py::{function}Tester::test_good"
            for function in ("Erf", "Gamma", "Gammaln", "Psi", "J0", "J1", "I0", "I1")
        ],
        "SciPy 1.17, which the test asks what to expect, gives float64 for uint8; SciPy 1.11 and 1.18 give float32, as "
        "Theano does",
    ),
    "theano/tensor/tests/test_slinalg.py::TestKron::test_perform": "the test itself calls scipy.linalg.kron, which "
    "SciPy does not have any more",
}
