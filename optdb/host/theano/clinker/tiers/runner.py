"""Starts the server that runs compilers, and sends commands to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

SECONDS_BETWEEN_LOOKS = 0.1


class Cancelled(Exception):
    """Raised if the program was killed because nothing needs its result or this process is exiting."""


class _SentCommand:
    def __init__(self) -> None:
        self.ended = threading.Event()
        self.status: int | None = None
        self.is_cancelled = False


class CompilerServer:
    """The compiler server of this process; the first command after each `close` starts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._requests: dict[int, _SentCommand] = {}
        self._number = 0

    def run(self, command: Sequence[str], is_needed: Callable[[], bool], env: Mapping[str, str] | None = None) -> bool:
        """Run a program until it exits; return whether it succeeded.

        `is_needed` is called periodically; when it returns False, the program is killed. The program gets the
        environment `env`, by default that of the server.

        Raises
        ------
        Cancelled
            If the program was killed.
        OSError
            If the server does not start.
        """
        number, request = self._send(command, env)
        while not request.ended.wait(SECONDS_BETWEEN_LOOKS):
            if not request.is_cancelled and not is_needed():
                request.is_cancelled = True
                self._write({"kill": number})
        if request.is_cancelled:
            raise Cancelled
        return request.status == 0

    def close(self) -> None:
        """Kill the running programs, and stop the server; `run` raises `Cancelled` in waiting threads."""
        with self._lock:
            process, self._process = self._process, None
            for request in self._requests.values():
                request.is_cancelled = True
            self._end_requests()
        if process is not None:
            _pipes(process)[0].close()
            process.wait()

    def forget(self) -> None:
        """Close this process's copies of its parent's pipes after a fork."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        self._requests.clear()
        if process is not None:
            # Do not close the file objects, whose locks may be held by threads that do not exist here.
            for pipe in _pipes(process):
                os.close(pipe.fileno())
            _abandoned.append(process)

    def _send(self, command: Sequence[str], env: Mapping[str, str] | None) -> tuple[int, _SentCommand]:
        request = _SentCommand()
        with self._lock:
            if self._process is None:
                self._start()
            self._number += 1
            number = self._number
            self._requests[number] = request
        self._write({"id": number, "command": list(command), "env": None if env is None else dict(env)})
        return number, request

    def _write(self, message: dict[str, object]) -> None:
        with self._lock:
            process = self._process
            if process is None:
                return
            try:
                pipe, _ = _pipes(process)
                pipe.write(f"{json.dumps(message)}\n")
                pipe.flush()
            except BrokenPipeError:
                self._end_requests()

    def _start(self) -> None:
        program = str(Path(__file__).with_name("server.py"))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        reader = threading.Thread(target=self._read, args=(self._process,), name="optdb-compilers", daemon=True)
        reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in _pipes(process)[1]:
            answer = json.loads(line)
            with self._lock:
                request = self._requests.pop(answer["id"], None)
            if request is not None:
                request.status = answer["status"]
                request.ended.set()
        with self._lock:
            if self._process is process:
                # The server was killed, so its programs count as failed, and the next command starts a new server.
                self._process = None
                self._end_requests()

    def _end_requests(self) -> None:
        for request in self._requests.values():
            request.ended.set()
        self._requests.clear()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


#: Servers of a parent process; kept alive because their finalizers would wait for processes that are not children of
#: this process.
_abandoned: list[subprocess.Popen[str]] = []
