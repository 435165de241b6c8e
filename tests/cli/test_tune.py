"""``python -m optdb tune``: what it says where it cannot begin. tests/opencl/test_tuning.py tests what it finds."""

from __future__ import annotations

import pytest

from tests.processes import python, python_path


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("nosuch", "Error: nosuch: no device is called that; there is:\n    opencl0:0"),
        ("opencl[9/2]", "Error: opencl[9/2]: the parts of a device are [1/2] to [2/2]"),
        ("", "Error: : no device is called that; there is:"),
    ],
)
def test_a_device_that_is_not_there(device, says):
    done = python("-m", "optdb", "tune", "--device", device)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(says)
    assert "Traceback" not in done.stderr


def test_without_pyopencl(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyopencl'] = None\n")
    done = python("-m", "optdb", "tune", env={"PYTHONPATH": python_path(tmp_path)})
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("The cure: pip install 'optdb[opencl]'\n")


def test_a_flag_that_is_wrong():
    done = python("-m", "optdb", "tune", flags="optdb.topo=Ture")
    assert done.returncode == 1
    assert done.stderr == "Error: optdb.topo=Ture: optdb.topo is True or False\n"
