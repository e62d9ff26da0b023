"""Repositories and downloads: a local server and a stand-in for GitHub; no test touches the network."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import rushlight
from rushlight import hub
from rushlight.hub import download

CONFIG = '''dependencies = ["math"]
import beside

def model(a, b=2):
    """About the model."""
    return a, b, beside.NUMBER

def _hidden(): ...
'''


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TORCH_HOME", "TORCH_HUB", "XDG_CACHE_HOME", "GITHUB_TOKEN", "TORCH_MODEL_ZOO"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "_chosen_dir", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    return tmp_path / "cache"


# ***** the cache's folder *****


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_chosen_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert hub.get_dir() == "/xdg/torch/hub"
    monkeypatch.setenv("TORCH_HOME", "/home_of_torch")
    assert hub.get_dir() == "/home_of_torch/hub"
    hub.set_dir(Path("/chosen"))
    assert hub.get_dir() == "/chosen"
    monkeypatch.setenv("TORCH_HUB", "/old")
    with pytest.warns(UserWarning, match="TORCH_HUB is deprecated"):
        hub.get_dir()


# ***** local repositories *****


@pytest.fixture
def repository(tmp_path: Path) -> str:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "hubconf.py").write_text(CONFIG)
    (folder / "beside.py").write_text("NUMBER = 5\n")
    return str(folder)


def test_a_local_repository(repository: str) -> None:
    assert hub.load(repository, "model", 1, b=3, source="local") == (1, 3, 5)
    assert repository not in sys.path


def test_errors_of_a_local_repository(repository: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Cannot find callable nothing in hubconf"):
        hub.load(repository, "nothing", source="local")
    with pytest.raises(ValueError, match="should be a string"):
        hub.load(repository, 3, source="local")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='Unknown source: "disk"'):
        hub.load(repository, "model", source="disk")
    with pytest.raises(FileNotFoundError):
        hub.load(str(tmp_path / "absent"), "model", source="local")
    Path(repository, "hubconf.py").write_text(
        "dependencies = ['math', 'not_there_1', 'not_there_2']\ndef model(): ...\n"
    )
    with pytest.raises(RuntimeError, match="Missing dependencies: not_there_1, not_there_2"):
        hub.load(repository, "model", source="local")
    assert repository not in sys.path


# ***** downloads *****


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", folder
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_file_is_whole_and_checked_or_absent(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    content = bytes(range(256)) * 1500
    (folder / "blob").write_bytes(content)
    target = tmp_path / "target"
    target.mkdir()
    hub.download_url_to_file(url + "blob", str(target / "a"), hashlib.sha256(content).hexdigest()[:8], progress=False)
    assert (target / "a").read_bytes() == content
    with pytest.raises(RuntimeError, match='invalid hash value \\(expected "00000000", got "'):
        hub.download_url_to_file(url + "blob", str(target / "b"), "00000000", progress=False)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        hub.download_url_to_file(url + "absent", str(target / "c"))
    assert [path.name for path in target.iterdir()] == ["a"]


def test_progress_without_tqdm(
    site: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder = site
    (folder / "blob").write_bytes(b"x" * 1000)
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, None)
    hub.download_url_to_file(url + "blob", str(tmp_path / "a"))
    assert capsys.readouterr().err == "\r100.0%\n"
    assert hub.tqdm is rushlight.utils.model_zoo.tqdm is hub.progress.PlainBar
    with hub.tqdm(total=None) as bar:
        bar.update(3)
    assert capsys.readouterr().err == "\r3 bytes\n"


def test_a_broken_connection_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda request: Answer(b"half", length=8))
    with pytest.raises(RuntimeError, match="ended after 4 of 8 bytes"):
        hub.download_url_to_file("http://nowhere/x", str(tmp_path / "a"), progress=False)
    assert not list(tmp_path.glob("a*"))


def test_a_state_dict_is_fetched_once(site: tuple[str, Path], cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, folder = site
    rushlight.save({"w": rushlight.ones(2)}, folder / "plain.pt")
    digest = hashlib.sha256((folder / "plain.pt").read_bytes()).hexdigest()
    (folder / f"named-{digest[:8]}.pt").write_bytes((folder / "plain.pt").read_bytes())
    for _ in range(2):
        found = hub.load_state_dict_from_url(url + "plain.pt", progress=False, weights_only=True)
        assert found["w"].tolist() == [1.0, 1.0]
    assert capsys.readouterr().out == f'Downloading: "{url}plain.pt" to {cache}/checkpoints/plain.pt\n'
    hub.load_state_dict_from_url(f"{url}named-{digest[:8]}.pt", progress=False, check_hash=True)
    assert sorted(p.name for p in (cache / "checkpoints").iterdir()) == [f"named-{digest[:8]}.pt", "plain.pt"]


# ***** GitHub *****


class Answer(io.BytesIO):
    def __init__(self, body: bytes, length: int | None = None) -> None:
        super().__init__(body)
        self.headers = Message()
        self.headers["Content-Length"] = str(len(body) if length is None else length)


class GitHub:
    """What GitHub answers for any repository; `extra` goes into the archives."""

    def __init__(self) -> None:
        self.branches, self.extra, self.asked = ["main"], {}, []  # type: ignore[var-annotated]
        self.offline = False

    def archive(self) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("name-1a2b/hubconf.py", CONFIG)
            archive.writestr("name-1a2b/beside.py", "NUMBER = 7\n")
            for name, text in self.extra.items():
                archive.writestr(name, text)
        return file.getvalue()

    def __call__(self, request: Any) -> Answer:
        url = request if isinstance(request, str) else request.full_url
        self.asked.append(url)
        if self.offline:
            raise urllib.error.URLError("no network")
        if "/tree/main/" in url and "main" in self.branches:
            return Answer(b"")
        if "/zipball/" in url:
            return Answer(self.archive())
        if "/branches?" in url or "/tags?" in url:
            known = self.branches if "/branches?" in url and url.endswith("&page=1") else []
            return Answer(json.dumps([{"name": b, "commit": {"sha": "1a2b"}} for b in known]).encode())
        raise urllib.error.HTTPError(url, 404, "Not Found", Message(), None)


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> GitHub:
    site = GitHub()
    monkeypatch.setattr(urllib.request, "urlopen", site)
    return site


def test_a_repository_is_fetched_and_kept(github: GitHub, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.load("owner/name", "model", 1, trust_repo=True) == (1, 2, 7)
    assert (cache / "trusted_list").read_text() == "owner_name\n"
    assert hub.list("owner/name") == ["model"] and hub.help("owner/name", "model") == "About the model."
    assert sum("/zipball/" in url for url in github.asked) == 1
    assert capsys.readouterr().err.count("Using cache found in") == 2
    github.offline = True
    assert hub.load("owner/name", "model", 1, verbose=False) == (1, 2, 7)
    with pytest.raises(RuntimeError, match="no internet connection and the repo could not be found in the cache"):
        hub.load("owner/other", "model", 1, trust_repo=True)


def test_strangers_are_asked_about(github: GitHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: answers.pop(0))
    for answer, error, text in (
        ("n", Exception, "Untrusted"),
        ("", Exception, "Untrusted"),
        ("maybe", ValueError, "Unrecog"),
    ):
        answers.append(answer)
        with pytest.raises(error, match=text):
            hub.load("owner/name", "model", 1)
    assert not any("/zipball/" in url for url in github.asked)
    answers.append("y")
    hub.load("owner/name", "model", 1)
    hub.load("owner/name", "model", 1)
    hub.load("pytorch/name", "model", 1)
    assert (cache / "trusted_list").read_text() == "owner_name\n"
    answers.append("no")
    with pytest.raises(Exception, match="Untrusted"):
        hub.load("owner/name", "model", 1, trust_repo=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("name-1a2b/../../evil", "directory traversal"),
        ("/evil", "absolute path"),
        ("C:\\evil", "absolute path"),
        ("name-1a2b\\..\\..\\evil", "directory traversal"),
        ("other/evil", "one folder"),
    ],
)
def test_hostile_archives_write_nothing(github: GitHub, cache: Path, tmp_path: Path, name: str, text: str) -> None:
    github.extra[name] = "x"
    with pytest.raises(ValueError, match=text):
        hub.load("owner/name", "model", 1, trust_repo=True)
    assert [p.name for p in cache.iterdir()] == ["trusted_list"] and not list(tmp_path.rglob("*evil*"))


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("name/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive, pytest.raises(ValueError, match="symbolic link"):
        download.checked_members(archive)


def test_refs_must_be_the_repositorys_own(github: GitHub) -> None:
    with pytest.raises(ValueError, match="Cannot find stray in https://github.com/owner/name"):
        hub.load("owner/name:stray", "model", 1, trust_repo=True)
    assert hub.load("owner/name:stray", "model", 1, trust_repo=True, skip_validation=True) == (1, 2, 7)
    assert hub.load("owner/name:1a2b", "model", 1, trust_repo=True) == (1, 2, 7)
    for wrong in ("owner", "a/b/c", "a/b:c:d", "../name", "a/.."):
        with pytest.raises(ValueError, match="expected a repository as 'owner/name'"):
            hub.load(wrong, "model")
