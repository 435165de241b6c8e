"""The checks of ``python -m optdb doctor``, and the functions that print their results.

Each check returns its finding, or raises `CheckFailed` with the problem and the fix. In `CHECKS`, each check follows
the checks that it depends on, because the remaining checks are skipped after a fatal failure.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from optdb.cli.terminal import print_text, verbatim
from optdb.files import check_folder
from optdb.host.theano.importing import activation, support, trials
from optdb.host.theano.importing.compat import libraries, versions
from optdb.runtime.errors import DeviceError
from optdb.user_cache import cache_dir


class CheckFailed(Exception):
    """Raised if a check fails; `finding` is the problem, and `cure` tells the user how to solve it.

    If the failure is not `fatal`, Theano works, but slowly. If the failure is `optional`, only the checked feature is
    affected. By default, `fatal` and `optional` determine the `mark`, which is one of `STYLES`.
    """

    def __init__(
        self, finding: str, cure: str, *, fatal: bool = True, optional: bool = False, mark: str | None = None
    ) -> None:
        super().__init__(finding)
        self.finding = finding
        self.cure = cure
        self.fatal = fatal and not optional
        self.mark = mark or (OFF if optional else FAIL if fatal else SLOW)


@dataclass(frozen=True)
class CheckResult:
    """A check's result: a mark from `STYLES`, and texts for `optdb.cli.terminal.print_text`."""

    name: str
    mark: str
    finding: str = ""
    cure: str = ""


def report(checks: Mapping[str, Callable[[], str]]) -> int:
    """Run checks, print their results, and return the exit status: 0 if all required parts work, 1 otherwise."""
    # Print the results after the last check, because the progress display occupies the terminal's last line until then.
    results = list(_with_progress(_results(checks)))
    console = Console()
    console.print("optdb: what works here\n", style="bold")
    for result in results:
        _print(console, result, max(map(len, checks)) + 1)
    return int(any(result.mark == FAIL for result in results))


def _print(console: Console, result: CheckResult, names: int) -> None:
    """Print a result; `names` is the width of the column of names."""
    head = f"{result.name:{names}} {result.mark:{_MARKS}}  "
    print_text(console, result.finding, head=head, indent=len(head), styles={f" {result.mark} ": STYLES[result.mark]})
    if result.cure:
        print_text(console, result.cure, head=f"{' ' * len(head)}cure: ", indent=len(head))


OK, SLOW, OFF, FAIL, SKIP = "works", "slow", "off", "fails", "-"
#: The colours of marks.
STYLES = {OK: "green", SLOW: "yellow", OFF: "yellow", FAIL: "red", SKIP: ""}
_MARKS = max(map(len, STYLES))


def _with_progress(results: Iterator[CheckResult | str]) -> Iterator[CheckResult]:
    """Yield the results, and show the running check on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print_text(console, "optdb: checking the installation; the first check compiles code for up to a minute")
    with console.status("checking the installation") as status:
        for result in results:
            if isinstance(result, str):
                status.update(f"checking {escape(result)} (the first check compiles code)")
            else:
                yield result


def _results(checks: Mapping[str, Callable[[], str]]) -> Iterator[CheckResult | str]:
    """Yield each check's name before it runs, and then its result."""
    stop = False
    for name, check in checks.items():
        if stop:
            yield CheckResult(name, SKIP)
            continue
        yield name
        try:
            yield CheckResult(name, OK, check())
        except CheckFailed as failure:
            yield CheckResult(name, failure.mark, failure.finding, failure.cure)
            stop = failure.fatal
        except (support.UnusableCompiledir, support.UnusableCompiler) as error:
            yield CheckResult(name, FAIL, error.finding, error.cure)
            stop = True
        except Exception as error:
            # Print unexpected errors and include them in the exit status.
            yield CheckResult(name, FAIL, f"{type(error).__name__}: {error}", REPORT_IT)
            stop = True


#: The maximum length of a value that is printed beside the name of its check, so that both fit in 80 columns.
_BESIDE_NAME = 55


def _unwrapped(value: str) -> str:
    """Return a command or options as one line that users can copy; a long line is printed below the check's name."""
    return value if len(value) <= _BESIDE_NAME else f"\n{verbatim(value)}"


#: The fix for bugs in optdb itself.
REPORT_IT = f"report it, and attach the file written by:\n{verbatim('python -m optdb doctor --report report.txt')}"


def _requirement(requirement: support.Requirement) -> Callable[[], str]:
    def check() -> str:
        version = support.found(requirement.name)
        if version is None:
            raise CheckFailed("not installed", verbatim(requirement.cure))
        if not requirement.admits(version):
            raise CheckFailed(version, verbatim(requirement.cure))
        return version

    return check


def _pip() -> str:
    """Check that the command ``pip`` installs packages for this Python."""
    command = Path(sys.executable).with_name("pip")
    if not command.exists():
        return "not in this environment"
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True)
    except OSError as error:
        raise _wrong_pip(f"cannot be started: {error.strerror}\n{verbatim(command)}") from error
    version = re.match(r"pip (\S+) from (.+) \(python \S+\)$", done.stdout.strip())
    if version is None:
        raise _wrong_pip(f"prints no version\n{verbatim(command)}")
    spec = find_spec("pip")
    own = [] if spec is None else spec.submodule_search_locations or []
    if Path(version[2]).resolve() not in [Path(folder).resolve() for folder in own]:
        here = f"not for this one, {platform.python_version()}"
        raise _wrong_pip(f"installs for another Python, {here}:\n{verbatim(version[2])}")
    return f"{version[1]}, installs for this Python"


def _wrong_pip(finding: str) -> CheckFailed:
    cure = f"write `python -m pip` instead of `pip`, or make an environment in a new folder:\n{verbatim(_NEW_FOLDER)}"
    return CheckFailed(finding, cure, fatal=False, mark=FAIL)


_NEW_FOLDER = "python -m venv FOLDER"


def _theano() -> str:
    return f"imported from\n{verbatim(trials.location())}"


def _translation() -> str:
    if not versions.needs_translation():
        some = " and ".join(filter(versions.is_translated, sorted(versions.INDEXING_BY_LISTS)))
        return f"only of {some}" if some else "not needed: Theano's modules run unmodified"
    from optdb.host.theano.importing.compat import loader

    types = ", with the result types of NumPy 1" if versions.needs_promotion() else ""
    translated = f"Theano's modules are translated{types}"
    try:
        check_folder(loader.cache_dir())
    except OSError as error:
        raise CheckFailed(
            f"{translated} in each process: {error.strerror}\n{verbatim(loader.cache_dir())}", _NAME_CACHE, fatal=False
        ) from error
    return f"{translated}, and cached in\n{verbatim(loader.cache_dir())}"


_NAME_CACHE = f"name another folder:\n{verbatim('export XDG_CACHE_HOME=FOLDER')}"


def _libraries() -> str:
    """List the installed libraries that use Theano, and whether optdb translates their versions."""
    installed = [library for library in libraries.LIBRARIES if library.installed()]
    if not installed:
        names = ", ".join(library.distribution for library in libraries.LIBRARIES)
        raise CheckFailed(f"no supported library is installed ({names})", "", optional=True)
    lines = [_describe_library(library) for library in installed]
    others = [library for library in installed if not library.is_supported()]
    if others:
        wanted = " ".join(f'"{library.distribution}{library.supported}"' for library in others)
        cure = f"to use them with Theano:\n{verbatim(f'python -m pip install --no-deps {wanted}')}"
        raise CheckFailed("\n".join(lines), cure, optional=True)
    return "\n".join(lines)


def _describe_library(library: libraries.Library) -> str:
    version = support.found(library.distribution)
    if library.is_supported():
        return f"{library.distribution} {version}: translated like Theano"
    return f"{library.distribution} {version}: not translated (optdb supports {library.supported})"


def _activation() -> str:
    if not activation.is_active():
        raise CheckFailed(
            "programs must import optdb before Theano, or be run by `python -m optdb run`",
            f"to make `import theano` work in all programs of this environment:\n{verbatim(_ACTIVATE)}",
            optional=True,
        )
    return f"`import theano` loads optdb, by\n{verbatim(activation.pth_file())}"


_ACTIVATE = "python -m optdb activate"


def _compiler() -> str:
    compiler = trials.compiler()
    if compiler is None:
        raise CheckFailed("none", f"install g++. On Debian:\n{verbatim('apt-get install g++')}", fatal=False)
    return _unwrapped(compiler)


def _blas() -> str:
    ldflags = trials.ldflags()
    if not ldflags:
        raise CheckFailed(
            "none: matrix products use NumPy",
            f"install OpenBLAS (the first line, on Debian), or name another BLAS:\n{verbatim(*_BLAS)}",
            fatal=False,
        )
    return _unwrapped(ldflags)


_BLAS = ("apt-get install libopenblas-dev", "export THEANO_FLAGS=blas.ldflags=-lNAME")


def _c_code() -> str:
    if trials.compiler() is None:
        return "not used without a compiler"
    trials.compile_c_code()
    return "compiles"


def _compiler_cost() -> str:
    if trials.compiler() is None:
        return "not used without a compiler"
    from optdb.host.theano.clinker.building import processors, seconds_for_headers

    seconds = seconds_for_headers()
    if not trials.builds_in_batches():
        return f"{seconds:.1f} s to parse headers for each module, one after another (optdb.clinker=False)"
    return f"{seconds:.1f} s to parse headers, once for many modules; {processors()} compilers in parallel"


SCAN_IN_PYTHON = "runs in Python, which makes loops with small steps several times slower"


def _scan() -> str:
    if trials.compiler() is None:
        raise CheckFailed(SCAN_IN_PYTHON, "install a compiler", fatal=False)
    try:
        version = trials.scan_version()
    except ImportError as error:
        raise CheckFailed(f"{SCAN_IN_PYTHON}: {_first_line(error)}", REPORT_IT, fatal=False) from error
    return f"compiles, version {version}"


def _caches() -> str:
    settings = {
        trials.compiledir(): "export THEANO_FLAGS=base_compiledir=FOLDER",
        cache_dir(): "export XDG_CACHE_HOME=FOLDER",
    }
    for folder, setting in settings.items():
        try:
            check_folder(folder)
        except OSError as error:
            raise CheckFailed(
                f"{error.strerror}\n{verbatim(folder)}", f"name another folder:\n{verbatim(setting)}"
            ) from error
    return f"can be written\n{verbatim(*settings)}"


def _opencl() -> str:
    try:
        from optdb.runtime import devices

        rows = devices.list_devices()
        best = devices.find("opencl")
    except DeviceError as error:
        problem, _, cure = str(error).partition("\nThe cure: ")
        raise CheckFailed(problem, f"to compute on devices, {cure}", optional=True) from error
    if not any(row.works and not row.profile.quirks.is_memory_checker for row in rows):
        raise CheckFailed(f"{best.name.strip()}: a memory checker", devices.driver_cure(rows), fatal=False)
    return "\n".join(f"{row.spec}: {row.name}" for row in rows if row.works)


def _kernel_cache() -> str:
    from optdb.cli.kernels import described, folder

    binaries = folder()
    if binaries.limit:
        try:
            check_folder(binaries.folder)
        except OSError as error:
            has_flags = support.found("Theano") is not None
            setting = (
                "export THEANO_FLAGS=optdb.kernel_cache_dir=FOLDER" if has_flags else "export XDG_CACHE_HOME=FOLDER"
            )
            raise CheckFailed(
                f"{error.strerror}\n{verbatim(binaries.folder)}",
                f"name another folder:\n{verbatim(setting)}",
                fatal=False,
            ) from error
    when = "" if binaries.entries() or not binaries.limit else f". {_WHEN_STORED}"
    return f"{described(binaries)}{when}\n{verbatim(binaries.folder)}"


_WHEN_STORED = "A program is stored when a function first runs on a device, unless the driver has its own cache"


def _engine() -> str:
    import optdb

    with optdb.enable():
        got = trials.run_small_function([1.0, 2.0])
    wanted = [4.0, 16.0]
    if not all(abs(a - b) < 1e-9 for a, b in zip(got, wanted)):
        raise CheckFailed(f"computed {got}, not {wanted}", REPORT_IT)
    return "compiles a small function with correct values"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


#: The checks for Theano.
CHECKS: dict[str, Callable[[], str]] = {
    "pip": _pip,
    **{requirement.name: _requirement(requirement) for requirement in support.REQUIREMENTS},
    "translation": _translation,
    "activation": _activation,
    "import theano": _theano,
    "compiler": _compiler,
    "BLAS": _blas,
    "C code": _c_code,
    "compile time": _compiler_cost,
    "scan's C code": _scan,
    "cache folders": _caches,
    "engine": _engine,
    "OpenCL": _opencl,
    "kernel cache": _kernel_cache,
    "libraries": _libraries,
}
