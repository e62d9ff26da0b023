"""Repositories: found, trusted, fetched, unpacked, and asked for what their `hubconf.py` offers."""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from rushlight._interface.base import trace_marks
from rushlight.hub.download import checked_members, download_url_to_file, get_dir

__all__ = ["help", "list", "load"]

_CONFIG = "hubconf.py"
# Whoever uses PyTorch trusts these already.
_TRUSTED_OWNERS = ("facebookresearch", "facebookincubator", "pytorch", "fairinternal")


@dataclass(frozen=True)
class Repository:
    """A place on GitHub: owner, name, and a branch, tag or commit."""

    owner: str
    name: str
    ref: str

    @property
    def label(self) -> str:
        return f"{self.owner}_{self.name}"

    @property
    def folder(self) -> str:
        """Its folder in the cache: a ref may hold slashes, a folder's name may not."""
        return "_".join((self.owner, self.name, self.ref.replace("/", "_").replace("\\", "_")))


def _default_ref(owner: str, name: str) -> str:
    """`main` where there is such a branch, else `master`; without network, whichever the cache has."""
    try:
        with urllib.request.urlopen(f"https://github.com/{owner}/{name}/tree/main/"):
            return "main"
    except HTTPError as error:
        if error.code == 404:
            return "master"
        raise
    except URLError as error:
        for ref in ("main", "master"):
            if os.path.exists(os.path.join(get_dir(), f"{owner}_{name}_{ref}")):
                return ref
        raise RuntimeError(
            f"It looks like there is no internet connection and the repo could not be found in the cache ({get_dir()})"
        ) from error


def _parsed(github: str) -> Repository:
    place, colon, ref = github.partition(":")
    parts = place.split("/")
    if len(parts) != 2 or ":" in ref or any(part in ("", ".", "..") or "\\" in part for part in parts):
        raise ValueError(f"expected a repository as 'owner/name' or 'owner/name:ref', found {github!r}")
    return Repository(parts[0], parts[1], ref if colon and ref else _default_ref(*parts))


# ***** trust *****


def _check_trust(repository: Repository, trust: Any) -> None:
    """Ask the user about an owner whom nobody has trusted yet; Exception if the answer is no."""
    listed = Path(get_dir()) / "trusted_list"
    listed.touch()
    known = listed.read_text().split()
    is_known = repository.label in known
    if trust is False or (trust == "check" and not is_known and repository.owner not in _TRUSTED_OWNERS):
        answer = input(
            f"The repository {repository.label} does not belong to the list of trusted repositories and as such cannot be "
            "downloaded. Do you trust this repository and wish to add it to the trusted list of repositories (y/N)?"
        )
        if answer.lower() in ("n", "no", ""):
            raise Exception("Untrusted repository.")
        if answer.lower() not in ("y", "yes"):
            raise ValueError(f"Unrecognized response {answer}.")
        if is_known:
            print("The repository is already trusted.")
    elif trust == "check":
        return
    if not is_known:
        with listed.open("a") as file:
            file.write(repository.label + "\n")


def _validate(repository: Repository) -> None:
    """ValueError unless the ref is the repository's own: GitHub serves the commits of forks under the original's
    address.
    """
    headers = {"Accept": "application/vnd.github.v3+json"}
    if token := os.getenv("GITHUB_TOKEN"):
        headers["Authorization"] = f"token {token}"
    for kind in ("branches", "tags"):
        page = 0
        while True:
            page += 1
            url = f"https://api.github.com/repos/{repository.owner}/{repository.name}/{kind}?per_page=100&page={page}"
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
                refs = json.loads(answer.read().decode("utf-8"))
            if not refs:
                break
            if any(ref["name"] == repository.ref or ref["commit"]["sha"].startswith(repository.ref) for ref in refs):
                return
    raise ValueError(
        f"Cannot find {repository.ref} in https://github.com/{repository.owner}/{repository.name}. "
        "If it's a commit from a forked repo, please call hub.load() with forked repo directly."
    )


# ***** fetching *****


def _unpack(archive_path: str, target: str) -> None:
    """The one folder of an archive becomes `target`, in one step; nothing is written anywhere else."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch:
        with zipfile.ZipFile(archive_path) as archive:
            names = checked_members(archive)
            tops = {name.split("/")[0] for name in names if "/" in name}
            if len(tops) != 1:
                raise ValueError(f"expected an archive of one folder, found {sorted(tops)}")
            archive.extractall(scratch)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(os.path.join(scratch, tops.pop()), target)


def _fetched(github: str, force_reload: bool, trust: Any, verbose: bool, skip_validation: bool) -> str:
    """The folder of a repository in the cache, downloaded if it is not there."""
    os.makedirs(get_dir(), exist_ok=True)
    repository = _parsed(github)
    _check_trust(repository, trust)
    target = os.path.join(get_dir(), repository.folder)
    if os.path.exists(target) and not force_reload:
        if verbose:
            sys.stderr.write(f"Using cache found in {target}\n")
        return target
    if not skip_validation:
        _validate(repository)
    url = f"https://github.com/{repository.owner}/{repository.name}/zipball/{repository.ref}"
    archive = os.path.join(get_dir(), repository.folder + ".zip")
    sys.stdout.write(f'Downloading: "{url}" to {archive}\n')
    try:
        download_url_to_file(url, archive, progress=False)
        _unpack(archive, target)
    finally:
        Path(archive).unlink(missing_ok=True)
    return target


# ***** entry points *****


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    """The folder at the head of the import path: a `hubconf.py` imports its neighbours."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _config(folder: str) -> Any:
    spec = importlib.util.spec_from_file_location(_CONFIG, os.path.join(folder, _CONFIG))
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {os.path.join(folder, _CONFIG)}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _entry(config: Any, model: str) -> Callable[..., Any]:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    missing = [name for name in getattr(config, "dependencies", None) or () if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    entry = getattr(config, model, None)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return entry


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = "check",
    verbose: bool = True,
) -> builtins.list[str]:
    """The names that a repository offers: the functions of its `hubconf.py` that begin with no underscore."""
    folder = _fetched(github, force_reload, trust_repo, verbose, skip_validation)
    with _importable(folder):
        config = _config(folder)
    return [name for name in dir(config) if callable(getattr(config, name)) and not name.startswith("_")]


def help(
    github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check"
) -> str | None:
    """The docstring of one of the names that a repository offers."""
    folder = _fetched(github, force_reload, trust_repo, True, skip_validation)
    with _importable(folder):
        return _entry(_config(folder), model).__doc__


@trace_marks.changes_later_calls
def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Call `model`, a function of a repository's `hubconf.py`, with the arguments and return its result.

    `source="github"`: `repo_or_dir` is `owner/name[:ref]`, downloaded unless it is in the cache or `force_reload` asks
    for a fresh one; the ref is checked to be the repository's own unless `skip_validation`.  `source="local"`: it is a
    folder.

    `trust_repo`: True trusts the repository and remembers that; "check" asks the user unless it is trusted; False
    always asks.

    ValueError for another source, RuntimeError for a name that is not there and for modules in `dependencies` that are
    not installed.
    """
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        repo_or_dir = _fetched(repo_or_dir, force_reload, trust_repo, verbose, skip_validation)
    folder = os.fspath(repo_or_dir)
    with _importable(folder):
        return _entry(_config(folder), model)(*args, **kwargs)
