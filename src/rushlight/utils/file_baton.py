"""`torch.utils.file_baton`: one process at a time, by a file that exists while one works."""

from __future__ import annotations

import os
import time
import warnings

__all__ = ["FileBaton"]


class FileBaton:
    """A lock that is a file: `try_acquire` makes it, `wait` sleeps until it is gone, `release` removes it.

    `warn_after_seconds`: the wait after which a warning names the file, which a killed process may have left.
    """

    def __init__(
        self, lock_file_path: str | os.PathLike[str], wait_seconds: float = 0.1, warn_after_seconds: float | None = None
    ) -> None:
        self.lock_file_path, self.wait_seconds = lock_file_path, wait_seconds
        self.warn_after_seconds = warn_after_seconds
        self.fd: int | None = None

    def try_acquire(self) -> bool:
        """Make the file; False where it exists."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Sleep until the file is gone."""
        limit, start = self.warn_after_seconds, time.monotonic()
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            if limit is not None and time.monotonic() - start > limit:
                warnings.warn(f'Waited on lock file "{self.lock_file_path}" for {limit} seconds.', stacklevel=2)
                limit = None

    def release(self) -> None:
        """Remove the file."""
        if self.fd is not None:
            os.close(self.fd)
        os.remove(self.lock_file_path)
