"""The cache's folder and files from the network: whole and checked, or not there at all."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import urllib.request
import uuid
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import urlparse

from rushlight import serialization
from rushlight._interface.base import trace_marks
from rushlight.hub.progress import bar_class

__all__ = ["download_url_to_file", "get_dir", "load_state_dict_from_url", "set_dir"]

CHUNK = 128 * 1024
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_chosen_dir: str | None = None


def get_dir() -> str:
    """The cache's folder: what `set_dir` was given, else `$TORCH_HOME/hub`, else `$XDG_CACHE_HOME/torch/hub`, else
    `~/.cache/torch/hub`.
    """
    if os.getenv("TORCH_HUB"):
        warnings.warn("TORCH_HUB is deprecated, please use env TORCH_HOME instead", stacklevel=2)
    if _chosen_dir is not None:
        return _chosen_dir
    return os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    """The folder above it, which other packages ask for."""
    home = os.getenv("TORCH_HOME") or os.path.join(os.getenv("XDG_CACHE_HOME") or "~/.cache", "torch")
    return os.path.expanduser(home)


@trace_marks.changes_later_calls
def set_dir(d: str | os.PathLike[str]) -> None:
    """Use another folder for the cache from now on."""
    global _chosen_dir
    _chosen_dir = os.path.expanduser(d)


def _receive(answer: Any, file: Any, progress: bool) -> str:
    """Copy an answer's body into a file; its SHA256."""
    length = answer.headers.get("Content-Length")
    bar = bar_class()(
        total=int(length) if length else None, disable=not progress, unit="B", unit_scale=True, unit_divisor=1024
    )
    digest, received = hashlib.sha256(), 0
    try:
        while chunk := answer.read(CHUNK):
            file.write(chunk)
            digest.update(chunk)
            received += len(chunk)
            bar.update(len(chunk))
    finally:
        bar.close()
    if length and received != int(length):
        raise RuntimeError(f"download_url_to_file: the connection ended after {received} of {length} bytes")
    return digest.hexdigest()


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Save what is at `url` as the file `dst`, which is there only once it is whole.

    `hash_prefix` is the beginning that the SHA256 must have: RuntimeError if it has another.  `progress` draws a bar on
    stderr.  What urllib raises passes through: `URLError` where there is no network, `HTTPError` for an answer such as
    404.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    with urllib.request.urlopen(request) as answer:
        dst = os.path.expanduser(dst)
        # in the same folder, so that the renaming is one step
        partial = f"{dst}.{uuid.uuid4().hex}.partial"
        try:
            with open(partial, "xb") as file:
                found = _receive(answer, file, progress)
            if hash_prefix is not None and not found.startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
            os.replace(partial, dst)
        finally:
            Path(partial).unlink(missing_ok=True)


def checked_members(archive: zipfile.ZipFile) -> list[str]:
    """The names in an archive; ValueError for one that leads out of the folder where it is unpacked, or is a link."""
    for info in archive.infolist():
        # what was written on the other kind of system counts as well
        for path in (PurePosixPath(info.filename), PureWindowsPath(info.filename)):
            if path.is_absolute() or path.drive or path.root:
                raise ValueError(f"Archive entry has absolute path: {info.filename}")
            if ".." in path.parts:
                raise ValueError(f"Archive entry contains directory traversal: {info.filename}")
        if (info.external_attr >> 16) & 0o170000 == 0o120000:
            raise ValueError(f"Archive entry is a symbolic link: {info.filename}")
    return archive.namelist()


def _is_wrapped(path: str) -> bool:
    """Whether a file is a ZIP archive around one file of the oldest format."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        return len(members) == 1 and not members[0].is_dir() and "/" not in members[0].filename


def _unwrapped(path: str, folder: str) -> str:
    warnings.warn(
        "Falling back to the old format < 1.6. This support will be deprecated in favor of default zipfile format "
        "introduced in 1.6. Please redo torch.save() to save it in the new zipfile format.",
        FutureWarning,
        stacklevel=3,
    )
    with zipfile.ZipFile(path) as archive:
        (name,) = checked_members(archive)
        archive.extract(name, folder)
    return os.path.join(folder, name)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Callable[[Any, str], Any] | str | dict[str, str] | None = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """Load the file at `url` with `torch.load`, which is kept in `model_dir` (without one, in
    `get_dir()/checkpoints`).

    A file that is there already is not fetched again.  Its name is the URL's, or `file_name`.  With `check_hash` the
    name says the beginning of the SHA256 before its ending, as in `resnet-5c106cde.pth`: RuntimeError if the file has
    another.
    """
    if os.getenv("TORCH_MODEL_ZOO"):
        warnings.warn("TORCH_MODEL_ZOO is deprecated, please use env TORCH_HOME instead", stacklevel=2)
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.fspath(model_dir)
    os.makedirs(folder, exist_ok=True)
    name = file_name if file_name is not None else os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stdout.write(f'Downloading: "{url}" to {path}\n')
        stated = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, stated.group(1) if stated else None, progress=progress)
    if _is_wrapped(path):
        path = _unwrapped(path, folder)
    return serialization.load(path, map_location=map_location, weights_only=weights_only)
