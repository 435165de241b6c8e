"""Runs compilers for another process, at low priority, and kills them when that process ends.

The server is a separate program that imports only the standard library. The server reads JSON lines from its standard
input, and answers each on its standard output:

- ``{"id": 1, "command": [...], "env": {...}}`` starts a program; the answer ``{"id": 1, "status": 0}`` is sent when it
  exits. With ``"env": null`` the program gets the server's environment.
- ``{"kill": 1}`` kills that program and its children.

The input ends when the parent closes it or dies, even by SIGKILL. The server then kills all programs and ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

NICENESS = 10


class Server:
    """The running programs, by request number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def serve(self) -> None:
        """Answer requests until the input ends."""
        for line in sys.stdin:
            request = json.loads(line)
            if "kill" in request:
                self._kill(request["kill"])
            else:
                self._start(request["id"], request["command"], request["env"])
        self._kill_all()

    def _start(self, number: int, command: list[str], env: dict[str, str] | None) -> None:
        try:
            # Start a new session, because g++ starts other programs, which must be killed with it.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        except OSError:
            self._answer(number, -1)
            return
        with self._lock:
            self._running[number] = process
        threading.Thread(target=self._wait, args=(number, process), daemon=True).start()

    def _wait(self, number: int, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with self._lock:
            self._running.pop(number, None)
        self._answer(number, status)

    def _answer(self, number: int, status: int) -> None:
        text = json.dumps({"id": number, "status": status})
        with self._lock:
            print(text, flush=True)

    def _kill(self, number: int) -> None:
        with self._lock:
            process = self._running.get(number)
        if process is not None:
            _kill_group(process.pid)

    def _kill_all(self) -> None:
        with self._lock:
            pids = [process.pid for process in self._running.values()]
        for pid in pids:
            _kill_group(pid)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has already exited


if __name__ == "__main__":
    os.nice(NICENESS)
    Server().serve()
