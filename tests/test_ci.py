"""The workflow, .ci/run and the Makefile name the same targets and Python versions."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def test_the_workflow_calls_targets_that_there_are():
    called = re.findall(r"- run: make ([a-z-]+)", WORKFLOW)
    assert {"lint", "test-all", "docs", "dist"} <= set(called) <= TARGETS


def test_the_workflow_tries_each_python_that_the_package_names():
    [matrix] = re.findall(r"^ +python: \[(.*)\]$", WORKFLOW, re.MULTILINE)
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = re.findall(r"^Programming Language :: Python :: (3\.\d+)$", setup["metadata"]["classifiers"], re.MULTILINE)
    assert re.findall(r"3\.\d+", matrix) == named


def test_what_runs_before_a_change_is_taken_is_what_the_workflow_runs():
    called = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert called == ["rules", "test-all"]
    # Types are checked while tests run, because tests sometimes leave a processor core idle.
    assert "types" in re.search(r"^AT_ONCE := (.*)$", MAKEFILE, re.MULTILINE)[1].split()


def test_documents_say_how_long_targets_take_as_make_does():
    documented = {
        name.lower().replace("_", "-"): minutes
        for name, minutes in re.findall(r"^([A-Z_]+)_MINUTES := (\d+)$", MAKEFILE, re.MULTILINE)
    }
    contributing = re.findall(r"^\| `make ([a-z-]+)` \| (\d+) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert dict(contributing) == documented


def test_processes_of_make_write_bytecode_whatever_the_environment_says():
    rule = 'show: ; @echo "[$$PYTHONDONTWRITEBYTECODE]"'
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    # If make runs the tests, these variables are set, and this make would behave like a make inside of another.
    env.pop("MAKEFLAGS", None)
    env.pop("MAKELEVEL", None)
    done = subprocess.run(
        ["make", "--eval", rule, "show"], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_python_that_pyenv_lacks_is_not_another_one(tmp_path):
    """If a version is missing, pyenv returns its default Python, which must not be used instead."""
    for name, text in {"python": "echo Python 3.7.1", "pyenv": f"echo {tmp_path}/python"}.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{text}\n")
        command.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}

    def found(name):
        return subprocess.run([ROOT / ".ci" / "python", name], env=env, capture_output=True, text=True, check=False)

    assert found("python3.7").stdout == f"{tmp_path}/python\n"
    assert found("python3.6").returncode == 1
