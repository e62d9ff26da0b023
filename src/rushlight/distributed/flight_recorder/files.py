"""Files of flight recorders: read without running what they hold."""

from __future__ import annotations

import os
import pickle
import re
from typing import Any

__all__ = ["read_directory", "read_file"]

_NUMBERED = re.compile(r"^(.*?)(\d+)$")


class _Plain(pickle.Unpickler):
    """Takes numbers, texts and containers: a file of another machine must not run code here."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a file of a flight recorder holds plain values, not {module}.{name}")


def read_file(path: str) -> dict[str, Any]:
    """Read the file of a rank.  ValueError for a file that is not of a flight recorder."""
    with open(path, "rb") as file:
        try:
            found = _Plain(file).load()
        except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError) as error:
            raise ValueError(f"{path} is no file of a flight recorder: {error}") from None
    if not isinstance(found, dict) or not {"entries", "pg_config", "version"} <= found.keys():
        raise ValueError(f"{path} is no file of a flight recorder: it has no entries, pg_config and version")
    return found


def read_directory(directory: str, prefix: str | None = None) -> dict[int, dict[str, Any]]:
    """rank -> what it wrote: the files `<prefix><rank>`; ValueError where the prefix cannot be told."""
    if not os.path.isdir(directory):
        raise ValueError(f"there is no directory {directory}")
    named: dict[str, dict[int, str]] = {}
    for name in sorted(os.listdir(directory)):
        match = _NUMBERED.match(name)
        if match and (prefix is None or match[1] == prefix) and os.path.isfile(os.path.join(directory, name)):
            named.setdefault(match[1], {})[int(match[2])] = os.path.join(directory, name)
    if not named:
        raise ValueError(f"no files <prefix><rank> in {directory}" + (f" with the prefix {prefix!r}" if prefix else ""))
    if len(named) > 1:
        raise ValueError(f"files of several prefixes in {directory}: {', '.join(sorted(named))}; choose by --prefix")
    return {rank: read_file(path) for rank, path in sorted(next(iter(named.values())).items())}
