"""The host enqueues commands ahead of the device for a limited time only, and waits rarely."""

from __future__ import annotations

import pytest

from optdb.runtime import timing
from optdb.runtime.timing import STRIDE_S, RunAhead


class Device:
    """A fake queue and its events; each step takes some time, and waiting for an event advances a fake clock."""

    def __init__(self, monkeypatch, seconds_per_step):
        self.now = self.done_at = 0.0
        self.seconds = seconds_per_step
        self.waits = 0
        self.behind = []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(timing.cl, "enqueue_marker", lambda queue: Marker(self, self.done_at))

    def step(self):
        self.now += 1e-6  # the host's part
        self.done_at = max(self.done_at, self.now) + self.seconds

    def flush(self):
        self.behind.append(self.done_at - self.now)


class Marker:
    def __init__(self, device, done_at):
        self.device, self.done_at = device, done_at

    def wait(self):
        self.device.waits += 1
        self.device.now = max(self.device.now, self.done_at)


def make_steps(device, count):
    ahead = RunAhead(device)
    for _ in range(count):
        device.step()
        ahead.after_step()


@pytest.mark.parametrize("seconds", [1e-5, 1e-3, 0.03, 0.2, 3.0])
def test_the_device_is_never_far_behind(monkeypatch, seconds):
    device = Device(monkeypatch, seconds)
    make_steps(device, 3000)
    assert max(device.behind) <= 3 * max(STRIDE_S, seconds)


def test_short_steps_are_rarely_waited_for(monkeypatch):
    device = Device(monkeypatch, 1e-5)
    make_steps(device, 100_000)
    assert 0 < device.waits < 40
