"""Every script that ``python -m optdb run`` runs ends as with plain python."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.processes import output, python

SCRIPT = """\
import atexit, pickle, sys

class Thing:
    pass

def fail(error):
    raise error

def chain():
    try:
        fail(KeyError("first"))
    except KeyError as error:
        raise RuntimeError("second") from error

def hook():
    sys.excepthook = lambda kind, error, tb: print("hook", kind, error, tb.tb_frame.f_code.co_name)
    fail(ValueError("x"))

ACTIONS = {
    "fine": lambda: None,
    "raise": lambda: fail(ValueError("x")),
    "chain": chain,
    "hook": hook,
    "exit": lambda: sys.exit(3),
    "exit-text": lambda: sys.exit("text"),
    "interrupt": lambda: fail(KeyboardInterrupt()),
    "late": lambda: atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Thing()))))),
}

print(sys.argv, sys.path[0], __name__, __file__, __package__, __spec__ and __spec__.name, type(__loader__))
print(sorted(name for name in globals() if name.startswith("__")))
print(type(pickle.loads(pickle.dumps(Thing()))))
if len(sys.argv) > 1:
    ACTIONS[sys.argv[1]]()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that contains a script, a package and a folder that can be run, and some that cannot be run."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "script.py").write_text(SCRIPT)
    (folder / "link.py").symlink_to("script.py")
    (folder / "broken.py").write_text("x = (1,\n")
    (folder / "empty").mkdir()
    for name in ("package", "program"):
        (folder / name).mkdir()
        (folder / name / "__main__.py").write_text(SCRIPT)
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "broken.py").write_text("import package.missing\n")
    return folder


def _same(folder, *args):
    plain = python(*args, cwd=folder)
    ours = python("-m", "optdb", "run", *args, cwd=folder)
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr
    assert ours.returncode == plain.returncode
    return plain


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("fine", 0),
        ("raise", 1),
        ("chain", 1),
        ("hook", 1),
        ("exit", 3),
        ("exit-text", 1),
        ("interrupt", -signal.SIGINT),
        ("late", 0),
    ],
)
def test_scripts_end_alike(folder, action, status):
    assert _same(folder, "script.py", action).returncode == status


@pytest.mark.parametrize("path", ["./script.py", "link.py", "package/../script.py", "program", "broken.py"])
def test_scripts_are_found_alike(folder, path):
    _same(folder, path, "raise")


@pytest.mark.parametrize("path", ["missing.py", "./missing.py", "empty"])
def test_what_is_not_there_is_missed_alike(folder, path):
    assert _same(folder, path).returncode != 0


@pytest.mark.parametrize(
    "name", ["script", "package", "missing", "missing.missing", "package.missing", "package.broken", "broken", "sys"]
)
def test_modules_are_run_alike(folder, name):
    _same(folder, "-m", name, "raise")


def test_a_scripts_options_are_its_own(folder):
    assert "['script.py', 'fine', '--no-topo', '--help', '-m']" in (
        _same(folder, "script.py", "fine", "--no-topo", "--help", "-m").stdout
    )


USES_THEANO = """\
import os
os.environ["THEANO_FLAGS"] += ",floatX=float32"
import theano
from optdb.topo import is_enabled
print(is_enabled(), theano.config.optdb.topo, theano.config.floatX)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "flags", "enabled"),
    [((), "", "True"), ((), "optdb.topo=False", "True"), (("--no-topo",), "optdb.topo=True", "False")],
)
def test_the_engine_is_on(tmp_path, options, flags, enabled):
    (tmp_path / "script.py").write_text(USES_THEANO)
    done = python("-m", "optdb", "run", *options, "script.py", cwd=tmp_path, flags=flags)
    assert done.stderr == ""
    assert done.stdout.split() == [enabled, enabled, "float32"]


def test_theano_is_not_imported_for_a_script_that_does_not(tmp_path):
    (tmp_path / "script.py").write_text("import sys; print('theano' in sys.modules)")
    assert python("-m", "optdb", "run", "script.py", cwd=tmp_path).stdout == "False\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="-P came with Python 3.11")
def test_safe_path(folder):
    plain = python("-P", "script.py", cwd=folder)
    ours = python("-P", "-m", "optdb", "run", "script.py", cwd=folder)
    assert ours.stdout == plain.stdout


def test_mistakes_on_the_command_line():
    done = python("-m", "optdb", "run")
    assert done.returncode == 2
    assert "Missing argument 'SCRIPT'" in done.stderr
    assert python("-m", "optdb", "--version").stdout.startswith("optdb, version ")


@pytest.mark.parametrize("command", ["run", "explain"])
def test_an_option_that_is_not_there_is_named(command):
    done = python("-m", "optdb", command, "--device", "gpu", "script.py")
    assert done.returncode == 2
    assert "Error: No such option: --device." in done.stderr
    assert "THEANO_FLAGS=optdb.device=opencl" in done.stderr


def test_a_misspelt_option_gets_a_suggestion():
    done = python("-m", "optdb", "explain", "--htm=page.html", "script.py")
    assert done.returncode == 2
    assert "Error: No such option: --htm=page.html. Did you mean --html?" in done.stderr


def test_an_error_without_frames_of_the_script_has_no_header():
    """If importing Theano fails before a module of Theano is run, only the error is printed, without a traceback."""
    done = python("-m", "optdb", "run", "-m", "theano.misc.ordered_set", flags="optdb.topo=maybe")
    assert done.returncode == 1
    assert done.stderr.strip() == "FlagError: optdb.topo=maybe: optdb.topo is True or False"


def test_the_list_of_commands_has_whole_sentences():
    commands = python("-m", "optdb", "--help").stdout.partition("Commands:")[2]
    assert "tune" in commands
    assert "..." not in commands


def test_the_command_line_reads_without_theano():
    assert output("import optdb.cli, sys; print({'theano', 'rich'} & set(sys.modules))") == "set()"


def test_a_module_of_theano_is_run():
    """A module of Theano that is run as a script gets the functions that optdb's translation of Theano needs."""
    done = python("-m", "optdb", "run", "-m", "theano.misc.ordered_set")
    assert done.returncode == 0, done.stderr
    assert "False" in done.stdout
