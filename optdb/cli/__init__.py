"""The command line: ``python -m optdb COMMAND``, or ``optdb COMMAND``.

Each command imports its module when it runs. `run` and `explain` return a callable, which `main` calls after click has
returned, because click would catch some of the script's exceptions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

import optdb
from optdb import flags
from optdb.unknown_names import nearest

#: Arguments after a script's name belong to the script.
_SCRIPTS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group()
@click.version_option(optdb.__version__, prog_name="optdb")
def cli() -> None:
    """Compile Theano's functions fast, and run them on OpenCL devices."""


@cli.command(short_help="Run a script with the engine.", context_settings=_SCRIPTS)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--topo/--no-topo", default=True, help="Turn optdb's engine on (the default), or off.")
@click.option("--tiered", is_flag=True, help="Compute in Python while compilers build C code (optdb.tiered).")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(is_module: bool, topo: bool, tiered: bool, script: str, args: tuple[str, ...]) -> Callable[[], None]:
    """Run SCRIPT as python would, with optdb's engine in Theano.

    The script need not import optdb. The engine is turned on when the script imports Theano. All flags in THEANO_FLAGS
    and .theanorc apply.
    """
    from optdb.cli.launch import launch

    _check_script(script)
    _force(topo, tiered)
    return lambda: launch(script, args, is_module=is_module)


@cli.command(short_help="Run a script, and show where each op runs.", context_settings=_SCRIPTS)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--topo/--no-topo", default=True, help="Turn optdb's engine on (the default), or off.")
@click.option("--tiered", is_flag=True, help="Compute in Python while compilers build C code (optdb.tiered).")
@click.option("--pictures", type=click.Path(file_okay=False, path_type=Path), help="Draw the graphs into this folder.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an HTML page about the functions to this file.",
)
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def explain(
    is_module: bool,
    topo: bool,
    tiered: bool,
    pictures: Path | None,
    html: Path | None,
    script: str,
    args: tuple[str, ...],
) -> Callable[[], None]:
    """Run SCRIPT, then report where the ops of its functions ran, and why."""
    from optdb.cli.explain import can_draw, explain_script

    _check_script(script)
    # Check for graphviz first, because the script may run for a long time.
    if pictures is not None and not can_draw():
        raise click.ClickException("--pictures needs the package graphviz: pip install 'optdb[picture]'")
    _force(topo, tiered)
    return lambda: explain_script(script, args, is_module=is_module, pictures=pictures, html=html)


def _check_script(script: str) -> None:
    """Raise `click.UsageError` if an unknown option precedes the script's name."""
    if script.startswith("-") and not Path(script).exists():
        options = [option for param in click.get_current_context().command.params for option in param.opts]
        near = nearest(script.partition("=")[0], options)
        flags_hint = "Flags such as optdb.device are set by THEANO_FLAGS=optdb.device=opencl"
        raise click.UsageError(f"No such option: {script}. {flags_hint if near is None else f'Did you mean {near}?'}")


def _force(topo: bool, tiered: bool) -> None:
    """Let options override the user's flags."""
    flags.FORCED["optdb.topo"] = topo
    if tiered:
        flags.FORCED["optdb.tiered"] = True


@cli.command(short_help="Check the installation, and show fixes.")
@click.option(
    "--patches", is_flag=True, help="List what optdb replaces in Theano or PyTensor, why, and what undoes it."
)
@click.option(
    "--report", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write a file for a bug report."
)
def doctor(patches: bool, path: Path | None) -> int:
    """Show what works here, with the cure for what does not.

    With --report, it writes versions, devices, flags, patches and cache folders into a file to attach to a bug report.
    The file can be published: it names neither the user nor folders of the user's projects.
    """
    if path is not None:
        return _write_report(path)
    if patches:
        from optdb.cli.patches import report_patches

        return report_patches()
    from optdb.cli.checks import report
    from optdb.cli.pytensor_checks import chosen_checks

    return report(chosen_checks())


def _write_report(path: Path) -> int:
    from optdb.cli.bug_report import write_report

    try:
        status = write_report(path)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}\nThe cure: name another file") from error
    click.echo(f"{path} contains what a bug report needs. Read it before you attach it.")
    return status


@cli.command(short_help="Let `import theano` work in this environment.")
def activate() -> int:
    """Let `import theano` work in this environment for programs that do not import optdb.

    It writes a .pth file, which imports nothing until a program imports Theano. The engine stays off unless a flag
    turns it on, such as THEANO_FLAGS=optdb.topo=True.
    """
    from optdb.host.theano.importing import activation

    try:
        path = activation.activate()
    except activation.CannotActivate as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"from now on, `import theano` loads optdb in all programs of {sys.prefix}: {path}")
    return 0


@cli.command(short_help="Undo activate.")
def deactivate() -> int:
    """Undo activate."""
    from optdb.host.theano.importing import activation

    try:
        was_active = activation.deactivate()
    except activation.CannotActivate as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"removed {activation.pth_file()}" if was_active else "not activated: nothing to do")
    return 0


@cli.command("install-theano", short_help="Install Theano 1.0.5.", context_settings={"ignore_unknown_options": True})
@click.argument("pip_options", nargs=-1, type=click.UNPROCESSED)
def install_theano(pip_options: tuple[str, ...]) -> int:
    """Install Theano 1.0.5, which pip alone cannot build on Python 3.12 and later.

    PIP_OPTIONS go to `pip install`.
    """
    from optdb.host.theano.importing.compat.installing import CannotInstall, install

    try:
        was_missing = install(pip_options)
    except CannotInstall as error:
        raise click.ClickException(str(error)) from error
    if not was_missing and not {"-q", "--quiet"}.intersection(pip_options):
        click.echo(f"Theano 1.0.5 is installed already, in {sys.prefix}: nothing to do")
    return 0


@cli.command(short_help="Show the OpenCL devices.")
@click.option("--profiles", is_flag=True, help="Show what each device can do, and its driver's quirks.")
def devices(profiles: bool) -> int:
    """Show the OpenCL devices, whether they work, and their names for optdb.device."""
    from optdb.cli.hardware import report

    return report(profiles)


@cli.command(short_help="Show the cache of built OpenCL programs.")
@click.option("--clear", is_flag=True, help="Remove all programs.")
def cache(clear: bool) -> int:
    """Show the folder and the size of the cache of OpenCL programs."""
    from optdb.cli.kernels import report

    return report(clear)


@cli.command(short_help="Measure block sizes of matrix products.")
@click.option("--device", default="opencl", help="The device, as the flag optdb.device names it.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    default=["float32", "float64"],
    type=click.Choice(["float16", "float32", "float64"]),
    help="The dtype of the matrices; can be repeated.",
)
@click.option("--clblast/--no-clblast", default=True, help="Also measure CLBlast if it is installed (the default).")
@click.option("--forget", is_flag=True, help="Remove the results of tuning, and use the defaults.")
def tune(device: str, dtypes: tuple[str, ...], clblast: bool, forget: bool) -> int:
    """Find the fastest kernels for matrix products on a device by measuring them, and store the result."""
    from optdb.cli.tune import report

    return report(device, dtypes, forget, clblast)


def _outcome() -> Callable[[], None] | int:
    """Run the command; return its exit status, or the callable to run.

    Errors that name a fix are converted to usage errors.
    """
    from optdb.cli.launch import USER_ERRORS

    try:
        # Click detects whether it was started as `python -m optdb` or as the console script `optdb`.
        return cli.main(standalone_mode=False)
    except USER_ERRORS as error:
        raise click.ClickException(str(error)) from None


def main() -> None:
    """Parse the command line, run the command, and exit with its status."""
    try:
        outcome = _outcome()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    if callable(outcome):
        outcome()
    else:
        sys.exit(outcome)
