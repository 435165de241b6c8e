"""The tests of Theano and PyTensor that may fail with optdb enabled, and why each failure is acceptable.

Only tests that assert how stock works, such as an exact phase, a class name or the number of passes, are listed. Tests
that assert a value or the quality of a graph must not be listed. If a listed test passes, it is reported, so that its
line can be removed.
"""

from __future__ import annotations

EXPECTED: dict[str, str] = {
    **dict.fromkeys(
        [
            f"theano/scan_module/tests/test_scan.py::T_Scan::{test}"
            for test in ("test_alloc_inputs1", "test_inner_storage_leak", "test_pushout", "test_pushout_dot")
        ],
        "with the device's linker: inspects nodes and storage of the inner function on the host, which a loop on "
        "the device does not have",
    ),
    **dict.fromkeys(
        [
            f"theano/tensor/tests/test_sharedvar.py::test_shared_options::{test}"
            for test in ("test_return_internal_type", "test_shared_dont_alias")
        ],
        "with the device's linker: writes into the array that get_value(borrow=True) returns, and asserts that a "
        "function reads the new values without set_value; the test itself says that the contract does not require "
        "this",
    ),
    "theano/tensor/tests/test_sharedvar.py::test_shared_options::test_shared_do_alias": "with the device's linker: "
    "writes into the array that was passed to theano.shared(..., borrow=True), after the first call has copied it to "
    "the device, and asserts that the next call reads the new values; the device keeps its copy until "
    "set_value(array, borrow=True), and the test itself says that the contract does not require aliasing",
    "theano/tensor/tests/test_basic.py::test_join_inplace": "with the device's linker: asserts that a borrowed "
    "result is the argument object itself; the device returns another array with the same values",
    "theano/tensor/tests/test_extra_ops.py::TestSearchsortedOp::test_searchsortedOp_on_right_side": "with the "
    "device's linker: searches an unsorted vector, for which NumPy's result is undefined",
    "theano/gof/tests/test_vm.py::test_c_thunks": "with tiers: asserts that a newly compiled function has C thunks, "
    "which it only has after optdb.wait",
    "theano/gof/tests/test_vm.py::test_no_recycling": "with tiers: asserts that the C thunks of two newly compiled "
    "functions share a module, which they only do after optdb.wait",
    "tests/graph/test_features.py::TestPickleRoundTrip::test_execute_callbacks_after_pickle": "with PyTensor "
    "rewritten by optdb: asserts that the time of each feature is recorded, which is only done with config.profile",
    "theano/tests/test_printing.py::test_scan_debugprint5": "with the cache: compares printed text in which "
    "Elemwise(second) has no name; the shared op has the name of theano.tensor.second",
}

#: Tests that may fail with newer versions of Python, NumPy or SciPy, but pass with the oldest ones (``--reference``).
EXPECTED_BETWEEN_VERSIONS: dict[str, str] = {
    "theano/compile/tests/test_function_module.py::T_picklefunction::test_broken_pickle_with_shared": "the test sets "
    "an attribute of a pickler written in C, which Python 3.13 does not allow",
    "theano/tensor/tests/test_basic.py::TriGammaTester::test_good": "the test expects SciPy's dtype, which is "
    "float64 for uint8 with NumPy 2's promotion rules; Theano's is float32",
    **dict.fromkeys(
        [
            f"theano/tensor/tests/test_basic.py::{function}Tester::test_good"
            for function in ("Erf", "Gamma", "Gammaln", "Psi", "J0", "J1", "I0", "I1")
        ],
        "the test expects SciPy's dtype, which is float64 for uint8 in SciPy 1.17, and float32 in Theano and in "
        "SciPy 1.11 and 1.18",
    ),
    "theano/tensor/tests/test_slinalg.py::TestKron::test_perform": "the test itself calls scipy.linalg.kron, "
    "which SciPy has removed",
}
