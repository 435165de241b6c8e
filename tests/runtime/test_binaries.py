"""Programs are kept on disk for a limited time, and damaged programs are never used."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from optdb.runtime import binaries, build
from optdb.runtime.binaries import Binaries, key_of
from optdb.runtime.device_profiles import DeviceQuirks, profile_of
from tests.opencl_device import runtime_context
from tests.processes import python_path
from tests.runtime.fake_devices import FakeDevice


def key(name):
    return hashlib.sha256(name.encode()).hexdigest()


@pytest.fixture
def kept(tmp_path):
    return Binaries(tmp_path / "kernels", 1)


# The folder


def test_what_is_kept_comes_out(kept):
    assert kept.load(key("a")) is None
    for content in (b"one", b"", b"another"):
        kept.save(key("a"), content)
        assert kept.load(key("a")) == content
    assert [entry.path.name for entry in kept.entries()] == [f"{key('a')}.bin"]
    assert oct(kept.folder.stat().st_mode)[-3:] == "700"


@pytest.mark.parametrize("damage", ["cut", "empty", "begin", "checksum", "last byte", "longer", "another's"])
def test_what_was_damaged_is_forgotten(kept, damage):
    kept.save(key("a"), bytes(range(256)))
    kept.save(key("b"), b"b")
    path = kept.folder / f"{key('a')}.bin"
    content = bytearray(path.read_bytes())
    at = {"begin": 0, "checksum": 20, "last byte": -1}.get(damage)
    if at is not None:
        content[at] ^= 1
    whole = {
        "cut": content[:100],
        "empty": b"",
        "longer": content + b"x",
        "another's": (kept.folder / f"{key('b')}.bin").read_bytes(),
    }
    path.write_bytes(whole.get(damage, content))
    assert kept.load(key("a")) is None
    assert not path.exists()
    assert kept.load(key("b")) == b"b"


@pytest.mark.parametrize("kind", ["fifo", "zeros", "loop", "sparse"])
def test_what_is_no_entry_is_replaced_by_one(kept, kind):
    kept.save(key("a"), b"a")
    path = kept.folder / f"{key('a')}.bin"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(100 << 30)
    else:
        path.symlink_to("/dev/zero" if kind == "zeros" else path)
    assert kept.load(key("a")) is None
    assert [entry.path for entry in kept.entries()] == [path]
    kept.save(key("a"), b"again")
    assert kept.load(key("a")) == b"again"
    assert path.is_file() and not path.is_symlink()


def test_what_was_not_used_for_longest_makes_room(kept):
    for number in range(4):
        kept.save(key(str(number)), bytes(250_000))
        os.utime(kept.folder / f"{key(str(number))}.bin", (number, number))
    assert kept.load(key("0")) is not None
    kept.save(key("4"), bytes(250_000))
    assert [kept.load(key(str(number))) is not None for number in range(5)] == [True, False, True, True, True]


def test_what_is_larger_than_all_drives_nothing_out(kept):
    kept.save(key("a"), b"a")
    kept.save(key("b"), bytes(2**20))
    assert kept.load(key("a")) == b"a"
    assert kept.load(key("b")) is None


def test_what_writers_left_behind_goes(kept):
    kept.save(key("a"), b"a")
    old, new = kept.folder / "old.tmp", kept.folder / "new.tmp"
    for file in (old, new):
        file.touch()
    os.utime(old, (0, 0))
    kept.save(key("b"), b"b")
    assert not old.exists()
    assert new.exists()


def test_clear(kept):
    assert kept.clear() == 0
    kept.save(key("a"), b"a")
    assert kept.clear() == 1
    assert list(kept.folder.iterdir()) == []
    assert kept.load(key("a")) is None


def test_nothing_is_kept_in_no_space(tmp_path):
    kept = Binaries(tmp_path / "kernels", 0)
    kept.save(key("a"), b"a")
    assert kept.load(key("a")) is None
    assert not kept.folder.exists()


def test_where_nothing_can_be_written_there_is_one_warning(tmp_path):
    (tmp_path / "file").touch()
    kept = Binaries(tmp_path / "file" / "kernels")
    with pytest.warns(
        RuntimeWarning, match=r"cannot be saved in .*/file/kernels \(.*\).*\nThe cure: .*kernel_cache_dir"
    ):
        kept.save(key("a"), b"a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept.save(key("a"), b"a")
        assert kept.load(key("a")) is None
        assert kept.entries() == []


def test_a_full_disk_leaves_nothing_half_done(kept, monkeypatch):
    kept.save(key("a"), b"a")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        kept.save(key("b"), b"b")
    assert [entry.path.name for entry in kept.entries()] == [f"{key('a')}.bin"]
    assert not list(kept.folder.glob("*.tmp"))


BUSY = """
import random, sys
from optdb.runtime.binaries import Binaries
kept, chance = Binaries(sys.argv[1], 1), random.Random(int(sys.argv[2]))
content = lambda n: bytes([n]) * 150_000
hits = 0
for _ in range(150):
    n = chance.randrange(12)
    got = kept.load(f"{n:064x}")
    hits += got is not None
    assert got is None or got == content(n), "a wrong program"
    if got is None or chance.random() < 0.3:
        kept.save(f"{n:064x}", content(n))
    if chance.random() < 0.02:
        kept.clear()
print(hits)
"""


@pytest.mark.slow
def test_processes_share_a_folder_that_is_too_small_for_all(tmp_path):
    command = [sys.executable, "-W", "error", "-c", BUSY, str(tmp_path / "kernels")]
    env = {**os.environ, "PYTHONPATH": python_path()}
    running = [
        subprocess.Popen([*command, str(seed)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for seed in range(3)
    ]
    for process in running:
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert int(out) > 0
    assert sum(entry.size for entry in Binaries(tmp_path / "kernels").entries()) <= 2**20


# The contents of a key


def device(**changed):
    platform = {name: changed.pop(name) for name in list(changed) if name.startswith("platform_")}
    result = FakeDevice("One", vendor="V", version="OpenCL 3.0", driver_version="1.0")
    vars(result).update(changed)
    for name, value in platform.items():
        setattr(result.platform, name.removeprefix("platform_"), value)
    return result


def test_a_key_stands_for_all_that_a_binary_depends_on(monkeypatch):
    keys = {
        key_of(device(), "source", ()),
        key_of(device(), "other source", ()),
        key_of(device(), "source", ("-DA",)),
        key_of(device(), "source", ("-D", "A")),
        key_of(device(), "-DAsource", ()),
        *(
            key_of(device(**{fact: "another"}), "source", ())
            for fact in ("name", "vendor", "version", "driver_version", "platform_name", "platform_version")
        ),
    }
    monkeypatch.setattr(binaries, "FORMAT", "another")
    keys.add(key_of(device(), "source", ()))
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-w")
    keys.add(key_of(device(), "source", ()))
    assert len(keys) == 13
    assert key_of(device(), "source", ()) in keys


# Programs


@pytest.fixture
def compiled(kept, monkeypatch):
    """Store the programs of all devices in a test folder; return a list to which each compiled program is added."""
    sources = []
    real = build._compile

    def counting(context, source, *args):
        sources.append(source)
        return real(context, source, *args)

    monkeypatch.setattr(binaries, "profile_of", lambda device: replace(profile_of(device), quirks=DeviceQuirks()))
    monkeypatch.setattr(binaries, "_current", kept)
    monkeypatch.setattr(build, "_compile", counting)
    return sources


SOURCE = "__kernel void k(__global int *a) { a[get_global_id(0)] = WIDTH + (int)get_global_id(0); }"


def computed(options=("-DWIDTH=3",)):
    context = runtime_context()
    program = build.make(context, SOURCE, options)
    result = np.zeros(4, "int32")
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, result.nbytes)
    cl.Kernel(program, "k")(context.queue, result.shape, (1,), buffer)
    cl.enqueue_copy(context.queue, result, buffer)
    return result.tolist()


def test_a_program_is_compiled_once(compiled):
    assert [computed() for _ in range(3)] == [[3, 4, 5, 6]] * 3
    assert computed(("-DWIDTH=4",)) == [4, 5, 6, 7]
    assert len(compiled) == 2


def test_what_was_damaged_is_compiled_again(compiled, kept):
    computed()
    (entry,) = kept.entries()
    content = bytearray(entry.path.read_bytes())
    content[-10] ^= 255
    entry.path.write_bytes(content)
    assert computed() == [3, 4, 5, 6]
    assert computed() == [3, 4, 5, 6]
    assert len(compiled) == 2
    assert entry.path.exists()


def test_what_the_driver_refuses_is_compiled_again(compiled, kept):
    name = key_of(runtime_context().device, SOURCE, ("-DWIDTH=3",))
    kept.save(name, b"no program of any driver's")
    assert computed() == [3, 4, 5, 6]
    assert len(compiled) == 1
    assert kept.load(name) not in (None, b"no program of any driver's")


def test_what_includes_others_is_not_kept(compiled, kept, tmp_path):
    (tmp_path / "width.h").write_text("#define WIDTH 3\n")
    source = f'#include "width.h"\n{SOURCE}'
    for _ in range(2):
        build.make(runtime_context(), source, [f"-I{tmp_path}"])
    assert len(compiled) == 2
    assert kept.entries() == []


def test_what_does_not_build_is_not_kept(compiled, kept):
    for _ in range(2):
        with pytest.raises(build.BuildError):
            build.make(runtime_context(), "no C")
    assert len(compiled) == 2
    assert kept.entries() == []


def test_drivers_with_a_cache_of_their_own_are_left_alone(monkeypatch, kept):
    monkeypatch.setattr(binaries, "_current", kept)
    assert binaries.for_device(device(platform_name="Portable Computing Language")) is None
    assert binaries.for_device(device()) is kept
    monkeypatch.setattr(binaries, "_current", Binaries(kept.folder, 0))
    assert binaries.for_device(device()) is None
