"""A course of launch merging pauses until some calls or other work are done, and then continues.

During a watched pause, each call runs in Python.
"""

from __future__ import annotations

import threading

import pytest

from optdb.device.launches import merging
from optdb.device.launches.merging import LaunchMerging, Pause, in_thread


def test_a_course_goes_on_after_some_calls():
    def course():
        yield Pause(calls=3)
        yield Pause("probes", calls=4)
        return "merged"

    merger = LaunchMerging(course())
    assert [merger.next() for _ in range(5)] == [None, None, None, "probes", "merged"]
    assert merger.done and merger.next() is None and not merger.expect(9)


def test_calls_without_python_count_up_to_the_one_that_needs_it():
    def course():
        yield Pause(calls=10)
        yield Pause("probes", calls=12, is_watched=True)

    merger = LaunchMerging(course())
    assert not merger.expect(4) and not merger.expect(5) and merger.expect(9)
    assert merger.next() == "probes"
    assert merger.expect(1) and merger.next() is None
    assert merger.next() is None and merger.done


def test_a_course_that_waits_for_nothing_is_over_at_once():
    def course():
        return None
        yield

    assert LaunchMerging(course()).done


def test_calls_end_for_the_pause_that_they_are_in():
    ended = []

    def course():
        for way in range(2):
            yield Pause(way, call_ended=lambda way=way: ended.append(way))

    merger = LaunchMerging(course())
    for _ in range(3):
        merger.call_ended()
        merger.next()
    assert ended == [0, 1] and merger.done


def test_no_call_waits_for_another_thread():
    goes_on = threading.Event()

    def course():
        yield Pause()
        found = yield from in_thread(lambda: goes_on.wait(60) and "merged")
        return found

    merger = LaunchMerging(course())
    assert merger.expect(1)
    assert [merger.next() for _ in range(3)] == [None] * 3
    assert not merger.expect(100)
    work = merger._pause
    goes_on.set()
    while not work.is_ready():
        pass
    assert merger.expect(1) and merger.next() == "merged" and merger.done


def test_an_error_of_another_thread_is_raised_once():
    def course():
        yield from in_thread(lambda: 1 // 0)

    merger = LaunchMerging(course())
    while not merger._pause.is_ready():
        pass
    with pytest.raises(ZeroDivisionError):
        merger.next()
    assert merger.done and merger.next() is None


def test_a_process_that_ends_takes_no_more_threads(monkeypatch):
    monkeypatch.setattr(merging, "in_background", lambda work, name: None)

    def course():
        return (yield from in_thread(lambda: "merged"))

    assert LaunchMerging(course()).done
