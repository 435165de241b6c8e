"""The flags optdb.device and optdb.contexts work in programs that do not mention OpenCL."""

from __future__ import annotations

import pytest
import theano

import optdb
from optdb.runtime.errors import DeviceError
from tests.processes import output, python, run_code

PROGRAM = """
    import numpy as np
    import optdb, theano, theano.tensor as tt
    s = theano.shared(np.ones(3, "float32"))
    for target in TARGETS:
        t = theano.shared(np.ones(3, "float32"), target=target)
        print(s.type, t.type, tt.fvector().transfer(target).type)
        print(t.get_value().tolist())
"""


def printed(flags, *targets):
    return output(PROGRAM.replace("TARGETS", repr(targets)), flags=flags).splitlines()


@pytest.mark.slow
def test_contexts_are_targets():
    there = "OpenCLArrayType<dev0>(float32, vector)"
    lines = printed("optdb.contexts=dev0->opencl;dev1->opencl", "dev0")
    assert lines == [f"TensorType(float32, vector) {there} {there}", "[1.0, 1.0, 1.0]"]


@pytest.mark.slow
def test_the_device_is_the_default_target():
    there = "OpenCLArrayType<opencl>(float32, vector)"
    assert printed("optdb.device=opencl", "opencl", None)[::2] == [f"{there} {there} {there}"] * 2


@pytest.mark.slow
def test_the_device_may_be_a_context():
    there = "OpenCLArrayType<dev1>(float32, vector)"
    lines = printed("optdb.device=dev1,optdb.contexts=dev0->opencl;dev1->opencl", "dev1")
    assert lines[0] == f"{there} {there} {there}"


@pytest.mark.slow
def test_the_host_alone_needs_no_pyopencl():
    assert output("import optdb, theano, sys; print('pyopencl' in sys.modules, 'optdb.opencl' in sys.modules)") == (
        "False False"
    )


@pytest.mark.slow
def test_without_pyopencl_the_error_says_so():
    code = "import sys; sys.modules['pyopencl'] = None; import optdb, theano"
    done = run_code(code, flags="optdb.device=opencl")
    assert done.stderr.strip().endswith("The cure: pip install 'optdb[opencl]'")


@pytest.mark.slow
def test_without_a_driver_the_error_says_so():
    code = "import optdb, theano, numpy; theano.shared(numpy.ones(3, 'float32'))"
    env = {"OCL_ICD_VENDORS": "/nonexistent", "OPENCL_VENDOR_PATH": "/nonexistent"}
    done = run_code(code, flags="optdb.device=opencl", env=env)
    assert "DeviceError: opencl: no OpenCL platform was found.\nThe cure: " in done.stderr


@pytest.mark.slow
def test_import_of_the_device_alone():
    assert output("import optdb.opencl; import theano; print(theano.config.optdb.device)") == "cpu"


@pytest.mark.slow
def test_a_function_is_read_where_the_device_is_another(tmp_path):
    write = f"""
        import pickle, numpy as np
        import optdb, theano
        s = theano.shared(np.arange(3, dtype="float32"), name="s")
        f = theano.function([], s * 2, updates=[(s, s + 1)])
        f()
        with open({str(tmp_path / "f")!r}, "wb") as file:
            pickle.dump((f, s), file)
        print(s.type)
    """
    read = f"""
        import pickle
        import optdb, theano
        with open({str(tmp_path / "f")!r}, "rb") as file:
            f, s = pickle.load(file)
        print(f().tolist(), s.get_value().tolist(), s.type.context.spec)
    """
    assert output(write, flags="optdb.device=opencl") == "OpenCLArrayType<opencl>(float32, vector)"
    assert output(read, flags="optdb.device=opencl[1/1]") == "[2.0, 4.0, 6.0] [2.0, 3.0, 4.0] opencl[1/1]"
    done = run_code(read)
    assert "ContextNotDefined: opencl: no such context; there is none.\nThe cure: THEANO_FLAGS=" in done.stderr


@pytest.mark.slow
def test_programs_are_kept_where_the_flags_say(tmp_path):
    code = f"""
        import numpy as np
        import optdb, theano, theano.tensor as tt
        from dataclasses import replace
        from optdb.runtime import binaries, device_profiles
        plain = device_profiles.DeviceQuirks()
        binaries.profile_of = lambda device: replace(device_profiles.profile_of(device), quirks=plain)
        x = tt.fvector()
        f = theano.function([x], tt.exp(x * 2) + 1)
        print(f(np.zeros(3, "float32")).tolist(), len(binaries.Binaries({str(tmp_path / "kept")!r}).entries()))
    """
    flags = f"optdb.device=opencl,optdb.kernel_cache_dir={tmp_path / 'kept'}"
    assert output(code, flags=flags) == "[2.0, 2.0, 2.0] 1"
    assert output(code, flags=flags) == "[2.0, 2.0, 2.0] 1"


@pytest.mark.slow
def test_a_device_that_is_not_there_is_an_error_and_no_run_on_the_host(tmp_path):
    (tmp_path / "script.py").write_text(
        "import theano, theano.tensor as tt\nx = tt.fvector()\nf = theano.function([x], tt.exp(x))\nprint('ran')\n"
    )
    done = python("-m", "optdb", "run", "script.py", flags="optdb.device=nosuch", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    [at] = [number for number, line in enumerate(lines) if line.startswith("Traceback")]
    assert lines[at + 1].endswith('script.py", line 3, in <module>')
    assert "theano.function" in lines[at + 2]
    assert "DeviceError: nosuch: no device has that name; there is:" in done.stderr
    assert "site-packages" not in "\n".join(lines[at:])


def test_the_host_is_no_opencl_device():
    x = theano.tensor.fvector()
    with pytest.raises(DeviceError, match="cpu is the host, not an OpenCL device"):
        optdb.SimulatorOCL(theano.function([x], x + 1, mode="FAST_COMPILE"), device="cpu")
