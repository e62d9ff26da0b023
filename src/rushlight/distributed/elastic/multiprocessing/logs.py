"""Where the output of workers goes: what is asked for, and the files that come of it."""

from __future__ import annotations

import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from rushlight._interface.launching import Streams
from rushlight.distributed.elastic.multiprocessing.streams import Std, to_map

__all__ = ["DefaultLogsSpecs", "LogsDest", "LogsSpecs"]


@dataclass
class LogsDest:
    """Files of the workers by local rank: an empty path is the launcher's own stream."""

    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    tee_stdouts: dict[int, str] = field(default_factory=dict)
    tee_stderrs: dict[int, str] = field(default_factory=dict)
    error_files: dict[int, str] = field(default_factory=dict)
    filtered_stdout: str = ""
    filtered_stderr: str = ""

    def streams(self, local_rank: int, prefix: str = "") -> Streams:
        """Those of one worker."""
        shown = self.tee_stdouts.get(local_rank, ""), self.tee_stderrs.get(local_rank, "")
        files = self.stdouts.get(local_rank) or shown[0] or None, self.stderrs.get(local_rank) or shown[1] or None
        return Streams(files[0], files[1], bool(shown[0]), bool(shown[1]), prefix)


class LogsSpecs(ABC):
    """Where output goes: the folder, what is written to files (`redirects`), what is shown as well (`tee`), and of which
    workers anything is shown.  A subclass makes the files of it (`reify`).
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        self._root_log_dir = log_dir
        self._redirects, self._tee, self._local_ranks_filter = redirects, tee, local_ranks_filter

    @abstractmethod
    def reify(self, envs: Mapping[int, Mapping[str, str]]) -> LogsDest:
        """The files of workers, from their environments by local rank."""

    @property
    @abstractmethod
    def root_log_dir(self) -> str | None:
        """The folder."""


class DefaultLogsSpecs(LogsSpecs):
    """A folder for each attempt, and in it for each worker: `stdout.log`, `stderr.log`, `error.json`.

    >>> from rushlight.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    >>> specs = DefaultLogsSpecs(redirects=Std.OUT)
    >>> files = specs.reify({0: {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "2"}})
    >>> files.stdouts[0].endswith("attempt_2/0/stdout.log"), files.stderrs[0]
    (True, '')
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        if log_dir is not None and os.path.exists(log_dir) and not os.path.isdir(log_dir):
            raise NotADirectoryError(f"log_dir: {log_dir} is a file")
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._job_dir: str | None = None

    @property
    def root_log_dir(self) -> str | None:
        """The folder."""
        return self._root_log_dir

    def _folder(self, run_id: str) -> str:
        if self._job_dir is None:
            if self._root_log_dir is not None:
                os.makedirs(self._root_log_dir, exist_ok=True)
            name = re.sub(r"[^\w.-]", "_", run_id)[:100]
            self._job_dir = tempfile.mkdtemp(prefix=f"{name}_", dir=self._root_log_dir)
        return self._job_dir

    def reify(self, envs: Mapping[int, Mapping[str, str]]) -> LogsDest:
        """Make the folders of an attempt: the files of each worker, by local rank.

        Run and attempt are `TORCHELASTIC_RUN_ID` and `TORCHELASTIC_RESTART_COUNT` of the first environment.
        """
        found = LogsDest()
        if not envs:
            return found
        first = envs[min(envs)]
        folder = os.path.join(
            self._folder(first.get("TORCHELASTIC_RUN_ID", "test_run_id")),
            f"attempt_{first.get('TORCHELASTIC_RESTART_COUNT', '0')}",
        )
        redirects, tee = to_map(self._redirects, len(envs)), to_map(self._tee, len(envs))
        for local_rank in envs:
            own = os.path.join(folder, str(local_rank))
            os.makedirs(own, exist_ok=True)
            hidden = self._local_ranks_filter is not None and local_rank not in self._local_ranks_filter
            for bit, name, files, shown in (
                (Std.OUT, "stdout.log", found.stdouts, found.tee_stdouts),
                (Std.ERR, "stderr.log", found.stderrs, found.tee_stderrs),
            ):
                path = os.path.join(own, name)
                kept = (redirects[local_rank] | tee[local_rank]) & bit
                files[local_rank] = path if kept else os.devnull if hidden else ""
                if tee[local_rank] & bit and not hidden:
                    shown[local_rank] = path
            found.error_files[local_rank] = os.path.join(own, "error.json")
        return found

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, tee={self._tee}, "
            f"local_ranks_filter={self._local_ranks_filter})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DefaultLogsSpecs):
            return False
        names = ("_root_log_dir", "_redirects", "_tee", "_local_ranks_filter")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]
