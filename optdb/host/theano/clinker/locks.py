"""File locks between processes, which the kernel releases when the owner dies."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path
from types import TracebackType

#: Error numbers that show that a file system has no locks; two processes may then do the same work.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EROFS, errno.EACCES)


class FileLock:
    """An exclusive lock on a file that is created on first use; the lock is a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock; wait for other processes if `blocking`. Return whether this process holds the lock."""
        while True:
            try:
                descriptor = self._open()
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    return True
                raise
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if blocking else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            except OSError as error:
                os.close(descriptor)
                if error.errno in _NO_LOCKS:
                    return True
                raise
            if self._is_current(descriptor):
                self._descriptor = descriptor
                _held.add(self)
                return True
            # The last holder removed the file while this process waited for the lock.
            os.close(descriptor)

    def release(self, remove: bool = False) -> None:
        """Release the lock; if `remove` is true, also remove the file (processes that wait create a new one)."""
        if self._descriptor is None:
            return
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None
        _held.discard(self)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(remove=True)


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """Close the descriptors inherited in a fork; otherwise, the locks would stay held after the parent's death."""
    for lock in list(_held):
        # At the time of the fork, another thread of the parent may have been about to discard the lock.
        if lock._descriptor is not None:
            os.close(lock._descriptor)
            lock._descriptor = None
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
