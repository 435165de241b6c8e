"""The output and the errors of ``python -m optdb tune``. tests/codegen/test_tuning.py tests what tuning finds."""

from __future__ import annotations

import pytest

from optdb.cli import kernels
from optdb.cli.tune import _tune_tensor_cores, report
from optdb.codegen.gemm import blocks, tune, tuning_table, warpgroups
from optdb.codegen.gemm.problem import CLASSES
from optdb.codegen.gemm.tensor_cores import TensorBlock
from optdb.runtime import binaries
from optdb.runtime.context import Context
from optdb.runtime.errors import DeviceError
from tests.processes import output, python, python_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("nosuch", "Error: nosuch: no device has that name; there is:\n    opencl0:0"),
        ("opencl[9/2]", "Error: opencl[9/2]: the parts are numbered [1/2] to [2/2]"),
        ("", "Error: : no device has that name; there is:"),
    ],
)
def test_a_device_that_is_not_there(device, says):
    done = python("-m", "optdb", "tune", "--device", device)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(says)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
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


def test_a_table_is_printed_and_results_are_kept_and_forgotten(tmp_path, monkeypatch, capsys):
    all_candidates = blocks.candidates

    def two_candidates(context, dtype):
        return all_candidates(context, dtype)[:2]

    monkeypatch.setattr(binaries, "_current", binaries.Binaries(tmp_path))
    monkeypatch.setattr(kernels, "folder", binaries.current)
    monkeypatch.setattr(tune, "typical", lambda name, units: [(30, 30, 8)])
    monkeypatch.setattr(tune, "SECONDS", 0.002)
    monkeypatch.setattr(blocks, "candidates", two_candidates)
    monkeypatch.setattr(blocks, "defaults", lambda *args: dict.fromkeys(CLASSES, two_candidates(*args)[-1]))
    assert report("opencl", ["float32"], library=False) == 0
    shown, progress = capsys.readouterr()
    assert all(name in shown for name in CLASSES) and "kept in" in shown
    assert progress == "optdb: measuring products of float32, for up to a minute\n"
    (path,) = binaries.current().folder.glob("tuning-*")
    assert str(path) in shown.replace("\n", "")
    assert report("opencl", ["float32"], forget=True) == 0
    assert not path.exists()
    with pytest.raises(DeviceError, match="no device has that name"):
        report("no such device", ["float32"])


def test_tensor_cores_are_measured_and_forgotten(tmp_path, monkeypatch, capsys):
    context, times = Context("opencl"), warpgroups.TileTimes(6e-7, 4e-6)
    monkeypatch.setattr(binaries, "_current", binaries.Binaries(tmp_path))
    monkeypatch.setattr(tune, "tune_tensor_cores", lambda context: {TensorBlock(32, 32, 16, 2, 16, 32): (0.5, 0.75)})

    tile = next(iter(warpgroups.DEFAULTS["tf32"]))
    monkeypatch.setattr(type(context.profile), "most_local_bytes", tile.local_bytes)

    def measured(context, arithmetic):
        if arithmetic != "tf32":
            return {}
        tuning_table.record(context, {warpgroups.table_class("tf32"): {tile.name: times}})
        return {tile: times}

    monkeypatch.setattr(tune, "tune_warpgroups", measured)
    _tune_tensor_cores(context, forget=False)
    shown = capsys.readouterr().out
    assert "32x32x16_2_16x32" in shown and "0.50  0.75" in shown
    assert "tf32 by warpgroups" in shown and "128x256_4_2" in shown and "0.600" in shown and "4.00" in shown
    assert "float16" not in shown
    assert warpgroups.times_of(context, "tf32")[tile] == times
    _tune_tensor_cores(context, forget=True)
    assert warpgroups.times_of(Context("opencl"), "tf32")[tile] == warpgroups.DEFAULTS["tf32"][tile]


@pytest.mark.slow
def test_results_are_kept_in_the_folder_of_the_flag(tmp_path):
    code = """
        import contextlib, io
        from optdb.cli.tune import report
        from optdb.codegen.gemm import tune
        from optdb.runtime import tuning

        tune.tune = lambda context, dtype, library: []
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            report("opencl", ["float32"])
        print(tuning.path_of({}).parent)
    """
    assert output(code, flags=f"optdb.kernel_cache_dir={tmp_path}") == str(tmp_path)
