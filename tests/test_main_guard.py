"""optdb detects script lines that start processes which would run the script again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from optdb.main_guard import is_guarded
from tests.processes import python_path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if __name__ == '__main__':\n    sample()", True),
        ("if True:\n  if __name__ == '__main__':\n    with model:\n        sample(\n)", True),
        ("if multiprocessing.parent_process() is None:\n    sample()", True),
        ("sample()", False),
        ("if __name__ == '__main__':\n    pass\nsample()", False),
        ("if fast:\n    sample()", False),
    ],
)
def test_guards_are_recognized(source, expected):
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "sample" in text)
    assert is_guarded(source, line) is expected


CALL = 'from optdb.main_guard import check_script\n{}check_script("starts workers", "do without")\n'


def _run(tmp_path, guard):
    script = tmp_path / "script.py"
    script.write_text(CALL.format(guard))
    env = {"PYTHONPATH": python_path(), "PATH": ""}
    return script, subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env)


def test_a_script_without_a_guard_is_an_error_that_names_the_line(tmp_path):
    script, done = _run(tmp_path, "")
    assert done.returncode == 1
    assert f"RuntimeError: {script}, line 2, starts workers, and each process runs the script again" in done.stderr
    assert done.stderr.rstrip().endswith('The cure: put this line under `if __name__ == "__main__":`, or do without')


def test_a_script_with_a_guard_runs(tmp_path):
    _, done = _run(tmp_path, 'if __name__ == "__main__":\n    ')
    assert done.returncode == 0, done.stderr
