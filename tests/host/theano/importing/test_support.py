"""optdb's error message if Theano cannot work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from optdb.host.theano.importing import support
from optdb.host.theano.importing.support import UnsupportedHost
from tests.processes import python, run_code

GOOD = {"Python": "3.11.4", "Theano": "1.0.5", "numpy": "1.23.5", "scipy": "1.11.4"}


@pytest.fixture
def here(monkeypatch):
    """The versions that appear to be installed; a test can change them."""
    versions = dict(GOOD)
    monkeypatch.setattr(support, "found", versions.get)
    return versions


def test_versions_that_work(here):
    support.check()
    here.update(Python="3.10.0", numpy="1.22.0", scipy="1.8.0")
    support.check()
    here.update(Python="3.14.1", numpy="2.5.5", scipy="1.18.1")
    support.check()


@pytest.mark.parametrize(
    ("name", "version", "cure"),
    [
        ("Python", "3.15.0", "Python 3.10 to 3.14"),
        ("Python", "3.9.18", "Python 3.10 to 3.14"),
        ("numpy", "1.21.6", 'pip install "numpy>=1.22,<3"'),
        ("numpy", "3.0.0rc1", 'pip install "numpy>=1.22,<3"'),
        ("scipy", "1.7.3", 'pip install "scipy>=1.8,<2"'),
        ("scipy", "2.0.0", 'pip install "scipy>=1.8,<2"'),
    ],
)
def test_a_version_that_does_not_work(here, name, version, cure):
    here[name] = version
    with pytest.raises(UnsupportedHost) as caught:
        support.check()
    message = str(caught.value)
    assert f"{name} {version}" in message
    assert f"{name} >=" in message
    assert cure in message
    assert caught.value.name == "theano"


@pytest.mark.parametrize(
    ("python", "cure"), [((3, 11), 'pip install "Theano>=1.0.5,<1.0.6"'), ((3, 12), "python -m optdb install-theano")]
)
def test_how_theano_is_installed(here, monkeypatch, python, cure):
    monkeypatch.setattr("sys.version_info", python)
    here["Theano"] = "1.0.4"
    with pytest.raises(UnsupportedHost) as caught:
        support.check()
    assert str(caught.value).endswith(f"The cure: {cure}")


@pytest.mark.parametrize("name", ["Theano", "numpy", "scipy"])
def test_what_is_not_installed(here, name):
    del here[name]
    with pytest.raises(UnsupportedHost, match=f"{name} is not installed") as caught:
        support.check()
    # Programs that catch the ImportError of `import theano` must continue as before.
    assert isinstance(caught.value, ModuleNotFoundError)


def test_an_ununderstandable_version_does_not_work(here):
    here["numpy"] = "unknown"
    with pytest.raises(UnsupportedHost):
        support.check()


FAKE = "import optdb; from optdb.host.theano.importing import support; support.found = {versions!r}.get; {then}"


@pytest.mark.parametrize("then", ["import theano", "optdb.enable", "import optdb.topo"])
def test_the_error_comes_when_theano_is_needed(then):
    done = run_code(FAKE.format(versions={**GOOD, "numpy": "1.21.6"}, then=then))
    assert done.returncode == 1
    assert "UnsupportedHost: Theano cannot work here: numpy 1.21.6 is installed." in done.stderr
    assert 'The cure: pip install "numpy>=1.22,<3"' in done.stderr


def test_no_error_where_theano_is_not_needed():
    done = run_code(FAKE.format(versions={}, then="print(optdb.__version__)"))
    assert done.returncode == 0
    assert done.stderr == ""


def test_theano_that_nobody_finds(tmp_path):
    code = """
        import sys
        sys.path = [folder for folder in sys.path if "site-packages" not in folder]
        import optdb
        try:
            import theano
        except ModuleNotFoundError as error:
            print(type(error).__name__, error.name)
    """
    assert run_code(code).stdout.split() == ["HostNotInstalled", "theano"]


def test_without_theano_public_names_say_what_to_call_with_pytensor():
    code = """
        import sys
        sys.path = [folder for folder in sys.path if "site-packages" not in folder]
        import optdb
        for name in ("explain", "export", "SimulatorOCL"):
            try:
                getattr(optdb, name)
            except ModuleNotFoundError as error:
                print(str(error).splitlines()[-1])
    """
    assert run_code(code).stdout.splitlines() == [
        "For functions of PyTensor: optdb.pytensor.explain(function)",
        "For functions of PyTensor: optdb.pytensor.export(function, path, examples)",
        'For functions of PyTensor: import optdb.pytensor, and write pytensor.function(inputs, outputs, mode="OPENCL")',
    ]


def test_a_full_disk_is_an_error_that_names_the_folder_and_the_cure():
    with pytest.raises(support.UnusableCompiledir) as error, support.writing_compiledir("the/folder"):
        Path("/dev/full").write_text("code")
    assert "No space left on device: the/folder" in str(error.value)
    assert "base_compiledir=" in str(error.value)


def test_a_compiler_that_finds_the_disk_full_is_told_alike():
    with pytest.raises(support.UnusableCompiledir, match="No space left"), support.writing_compiledir("folder"):
        raise Exception("Compilation failed (return status=1): ld: final link failed: No space left on device.")


def test_a_full_folder_of_temporary_files_is_named():
    message = (
        "Compilation failed (return status=1): m.cpp:1:1: fatal error: error writing to /t/ccwASjbS.s: No space left"
    )
    with pytest.raises(support.UnusableCompiler) as error, support.writing_compiledir("folder"):
        raise Exception(f"{message} on device. 1104 | }}.")
    assert error.value.finding.endswith("No space left on device: /t")
    assert error.value.cure.endswith("export TMPDIR=FOLDER")


@pytest.mark.parametrize("error", [ValueError("another"), FileNotFoundError(2, "missing"), KeyboardInterrupt()])
def test_other_errors_pass(error):
    with pytest.raises(type(error)) as raised, support.writing_compiledir("folder"):
        raise error
    assert raised.value is error


def test_a_compiledir_that_cannot_be_made_is_an_error_with_a_cure():
    done = run_code("import optdb, theano", env={"THEANO_FLAGS": "base_compiledir=/proc/none"})
    assert "UnusableCompiledir" in done.stderr
    assert "The cure: " in done.stderr.splitlines()[-2]
    doctor = python("-m", "optdb", "doctor", env={"THEANO_FLAGS": "base_compiledir=/proc/none", "COLUMNS": "500"})
    assert "doctor --report" not in doctor.stdout
    assert "THEANO_FLAGS=base_compiledir=FOLDER" in doctor.stdout


@pytest.mark.parametrize(
    ("script", "message", "cure"),
    [
        (None, "the compiler cannot be started (No such file or directory)", "apt-get install g++"),
        (
            "exit 1",
            "the compiler cannot compile Theano's code: it prints no message",
            "export THEANO_FLAGS=cxx=clang++",
        ),
        (
            "echo 'mod.cpp:1:10: fatal error: Python.h: No such file or directory' >&2; exit 1",
            "the compiler cannot compile Theano's code: error: Python.h: No such file or directory",
            f"apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-dev",
        ),
    ],
)
@pytest.mark.slow
def test_a_compiler_that_does_not_work_is_an_error_with_a_cure(tmp_path, script, message, cure):
    compiler = tmp_path / "c++"
    if script is not None:
        compiler.write_text(f"#!/bin/sh\n{script}\n")
        compiler.chmod(0o755)
    flags = f"cxx={compiler},base_compiledir={tmp_path}"
    done = run_code("import optdb, theano", flags=flags)
    finding, _, advice = done.stderr.strip().partition("\nThe cure: ")
    assert finding.endswith(f"UnusableCompiler: cxx={compiler}: {message}")
    assert f"    {cure}" in advice.splitlines()
    assert advice.endswith("or do without a compiler:\n    export THEANO_FLAGS=cxx=")
    doctor = python("-m", "optdb", "doctor", flags=flags, env={"COLUMNS": "500"})
    assert message in doctor.stdout
    assert "doctor --report" not in doctor.stdout


def _failure(complaint: str) -> Exception:
    """Return an exception like that of Theano's compiler class, with the text that Theano adds."""
    return Exception(
        "The following error happened while compiling the node", f"Compilation failed (return status=1): {complaint}"
    )


@pytest.mark.thorough_cases("no compiler-alone", "bad option-batched")
@pytest.mark.slow
@pytest.mark.parametrize("is_batched", [True, False], ids=["batched", "alone"])
@pytest.mark.parametrize(
    ("flag", "finding", "cure"),
    [
        ("cxx=g++-none", "cxx=g++-none: the compiler cannot be started", "apt-get install g++"),
        ("gcc.cxxflags=-fnonsense", "unrecognized command-line option", "remove -fnonsense from Theano's flag"),
    ],
    ids=["no compiler", "bad option"],
)
def test_a_compiler_that_stops_working_is_the_same_error(tmp_path, flag, finding, cure, is_batched):
    """If caches are full, importing Theano starts no compiler: the first compilation is that of `theano.function`."""
    flags = f"cxx=g++,base_compiledir={tmp_path},optdb.clinker={is_batched}"
    function = "import optdb, theano; x = theano.tensor.dscalar(); theano.function([x], {})"
    assert run_code(function.format("x + 1"), flags=flags).returncode == 0
    done = run_code(function.format("x * 3"), flags=f"{flags},{flag}")
    assert f"UnusableCompiler: {finding}" in done.stderr or f"Theano's code: error: {finding}" in done.stderr
    assert cure in done.stderr.partition("\nThe cure: ")[2]
    doctor = python("-m", "optdb", "doctor", flags=f"{flags},{flag}", env={"COLUMNS": "500"})
    assert finding in doctor.stdout
    assert cure in doctor.stdout
    assert "doctor --report" not in doctor.stdout


def test_a_compiler_that_disappears_has_a_cure():
    with (
        pytest.raises(support.UnusableCompiler, match="cannot be started") as error,
        support.naming_compiler("g++-none"),
    ):
        subprocess.run(["g++-none"])
    error.value.args = ("The following error happened while compiling the node", "x + 1", *error.value.args)
    assert str(error.value).startswith("cxx=g++-none: the compiler cannot be started (No such file or directory)\n")


def test_faulty_code_is_not_the_compilers_fault():
    """If C code does not compile, the user's op may be wrong, not the compiler."""
    error = _failure("m.cpp:3:1: error: too few arguments to function 'f'. ")
    with pytest.raises(Exception, match="too few arguments") as raised, support.naming_compiler("g++"):
        raise error
    assert raised.value is error
    assert "clang++" in support.compiler_error(error, "g++").cure  # the message for code that is known to be right


@pytest.mark.parametrize(
    "complaint",
    [
        "error: unrecognized command-line option '-fnonsense'; did you mean '-fno-see'?",
        "error: unknown argument: '-fnonsense'",
    ],
)
def test_an_option_that_the_compiler_does_not_know_has_a_cure(complaint):
    with pytest.raises(support.UnusableCompiler) as error, support.naming_compiler("g++"):
        raise _failure(complaint)
    assert "remove -fnonsense from Theano's flag gcc.cxxflags" in error.value.cure


def test_other_errors_are_not_the_compilers():
    assert support.compiler_error(Exception("something else"), "g++") is None
    assert support.compiler_error(FileNotFoundError(2, "missing", "file"), "g++") is None
