"""The disk cache of object files: what it must find, and what it must not believe."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
import warnings

import pytest

from rushlight._native.cache import ObjectCache, default_cache
from rushlight._native.target import TargetDescription, host_target

KEY = b"k" * 32


def fresh(tmp_path, fingerprint="machine", **kwargs):
    return ObjectCache(str(tmp_path / "cache"), fingerprint, **kwargs)


def test_a_stored_object_is_found_by_another_process(tmp_path):
    cache = fresh(tmp_path)
    key = cache.key("kernel", "define void @f()")
    assert cache.get(key) is None
    cache.put(key, b"object")
    assert cache.get(key) == b"object"
    assert fresh(tmp_path).get(key) == b"object"
    cache.put(key, b"other")
    assert fresh(tmp_path).get(key) == b"other"
    assert (cache.hits, cache.misses) == (1, 1)


def test_keys_tell_everything_apart(tmp_path):
    cache = fresh(tmp_path)
    keys = {
        cache.key("a", "bc"),
        cache.key("ab", "c"),
        cache.key("abc"),
        cache.key(b"abc", b""),
        fresh(tmp_path, "other").key("a", "bc"),
    }
    assert len(keys) == 5
    cache.put(KEY, b"x")
    assert fresh(tmp_path, "other").get(KEY) is None


def test_an_empty_object(tmp_path):
    cache = fresh(tmp_path)
    cache.put(KEY, b"")
    assert fresh(tmp_path).get(KEY) == b""


@pytest.mark.parametrize(
    "damage",
    [lambda d: d[:-1], lambda d: d + b"x", lambda d: b"", lambda d: d[:40], lambda d: d[:-3] + b"abc",
     lambda d: b"rushlight object 0\n" + d[19:], lambda d: d[:19] + b"z" * 32 + d[51:],
     lambda d: d[:51] + b"z" * 32 + d[83:]],
    ids=["truncated", "longer", "empty", "head only", "changed", "old format", "other key", "wrong digest"],
)  # fmt: skip
def test_damaged_files_are_ignored_and_replaced(tmp_path, damage):
    cache = fresh(tmp_path)
    cache.put(KEY, b"object code")
    path = cache.path(KEY)
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(damage(data))
    assert cache.get(KEY) is None
    cache.put(KEY, b"object code")
    assert cache.get(KEY) == b"object code"


def test_a_file_under_another_key_is_not_believed(tmp_path):
    cache = fresh(tmp_path)
    cache.put(KEY, b"object code")
    other = b"o" * 32
    os.rename(cache.path(KEY), cache.path(other))
    assert cache.get(other) is None


def test_links_and_foreign_files_are_not_followed(tmp_path, monkeypatch):
    cache = fresh(tmp_path)
    cache.put(KEY, b"object code")
    path = cache.path(KEY)
    os.rename(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    assert cache.get(KEY) is None
    cache.put(KEY, b"object code")
    assert not os.path.islink(path)
    os.chmod(path, 0o666)
    assert cache.get(KEY) is None, "others could have written it"
    os.chmod(path, 0o600)
    assert cache.get(KEY) == b"object code"
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert cache.get(KEY) is None, "it belongs to someone else"


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device", "link to a pipe", "huge", "no head"])
def test_what_is_no_object_file_is_neither_waited_for_nor_read(tmp_path, run_python, monkeypatch, kind):
    """In a process of its own: opening a pipe waits for a writer, unless told not to."""
    cache = fresh(tmp_path)
    cache.put(cache.key("first"), b"a file of ours")
    path = cache.path(KEY)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(os.path.dirname(path))  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("s")
        os.rename("s", path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
        except OSError:
            pytest.skip("devices are made by root")
    elif kind == "link to a pipe":
        os.mkfifo(tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", path)
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40 if kind == "huge" else 5)
    code = f"""
import warnings; warnings.simplefilter("error")
from rushlight._native.cache import ObjectCache
cache = ObjectCache({str(tmp_path / "cache")!r}, "machine")
print(cache.get({KEY!r}), cache.keep({KEY!r}, b"new"), cache.get({KEY!r}), cache.get(cache.key("first")))
"""
    done = run_python("-c", code, timeout=60, check=True)
    found = None if kind == "folder" else b"new"  # what is no folder is replaced
    assert done.stdout.strip() == f"None {b'new'} {found} {b'a file of ours'}"


def test_the_directory_is_private(tmp_path):
    cache = fresh(tmp_path)
    cache.put(KEY, b"object code")
    for directory in (cache.root, cache.directory):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(cache.path(KEY)).st_mode) == 0o600


@pytest.mark.parametrize("trouble", ["open to others", "a link", "a file", "someone else's"])
def test_a_directory_that_cannot_be_trusted_disables_the_cache(tmp_path, trouble, monkeypatch):
    fresh(tmp_path).put(KEY, b"object code")
    root = tmp_path / "cache"
    if trouble == "open to others":
        os.chmod(root, 0o777)
    elif trouble == "a link":
        os.rename(root, tmp_path / "real")
        os.symlink(tmp_path / "real", root)
    elif trouble == "a file":
        os.rename(root, tmp_path / "real")
        root.write_text("")
    else:
        me = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: me + 1)
    cache = fresh(tmp_path)
    with pytest.warns(RuntimeWarning, match="not kept on disk"):
        assert cache.get(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        cache.put(KEY, b"x")
        assert cache.get(KEY) is None


def test_a_full_disk_disables_the_cache_with_one_warning(tmp_path, monkeypatch):
    cache = fresh(tmp_path)
    cache.put(b"a" * 32, b"before")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left") as seen:
        cache.put(KEY, b"object code")
        cache.put(KEY, b"object code")
    assert len(seen) == 1
    assert not [name for name in os.listdir(fresh(tmp_path).directory) if name.endswith(".tmp")]


def test_a_home_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    cache = fresh(tmp_path)
    assert cache.get(KEY) is None  # nothing there yet is no trouble
    monkeypatch.setattr(os, "makedirs", refuse)
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        cache.put(KEY, b"object code")


def test_no_directory_keeps_nothing():
    cache = ObjectCache("", "machine")
    cache.put(KEY, b"object code")
    assert cache.get(KEY) is None


def test_the_oldest_files_go_first(tmp_path):
    cache = fresh(tmp_path, limit_bytes=20_000)
    keys = [bytes([i]) * 32 for i in range(30)]
    now = time.time()
    for i, key in enumerate(keys):
        cache.put(key, bytes(1000))
        os.utime(cache.path(key), (now - 1000 + i, now - 1000 + i)) if os.path.exists(cache.path(key)) else None
    kept = [key for key in keys if cache.get(key) is not None]
    assert 10 <= len(kept) <= 20
    assert kept == keys[-len(kept) :]
    assert sum(size for _, size, _ in cache._files()) <= 20_000


def test_few_processes_look_at_the_whole_cache(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(ObjectCache, "_files", lambda self: looks.append(self) or [])
    for limit in (1 << 50, 10_000):
        looks.clear()
        for number in range(20):  # what twenty processes do that write little
            cache = fresh(tmp_path, limit_bytes=limit)
            cache.put(cache.key(str(number)), b"x" * 1000)
        assert len(looks) == (0 if limit == 1 << 50 else 20)


def test_use_keeps_a_file_young(tmp_path):
    cache = fresh(tmp_path)
    cache.put(KEY, b"x")
    os.utime(cache.path(KEY), (1, 1))
    assert cache.get(KEY) == b"x"
    assert os.stat(cache.path(KEY)).st_mtime > 1


_WRITER = """
import sys, hashlib
from rushlight._native.cache import ObjectCache
cache = ObjectCache(sys.argv[1], "machine", limit_bytes=300_000)
for round in range(30):
    for i in range(20):
        key = hashlib.sha256(str(i).encode()).digest()
        data = cache.get(key)
        assert data is None or data == bytes([i]) * 20_000, "torn"
        cache.put(key, bytes([i]) * 20_000)
"""


def test_many_processes_at_once(tmp_path, run_python):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        for done in pool.map(lambda _: run_python("-c", _WRITER, str(tmp_path / "cache")), range(4)):
            assert done.returncode == 0 and done.stderr == "", done.stderr
    assert not [path for _, _, path in fresh(tmp_path)._files() if path.endswith(".tmp")]


_FIRST = """
from rushlight._native import jit
from rushlight._backends.cpu.runtime.stubs import bind
from rushlight._native import native
from test_first_import import twice
compiled = []
original = jit.compile_object
jit.compile_object = lambda *a: compiled.append(1) or original(*a)
assert bind(twice)(21) == 42
print(len(compiled))
import sys
print("ast" in sys.modules, "rushlight._native.compiler" in sys.modules)
"""


def test_a_second_process_compiles_nothing(tmp_path, run_python, monkeypatch):
    (tmp_path / "test_first_import.py").write_text(
        "from rushlight._native import native\n@native('i64(i64)')\ndef twice(x):\n    return 2 * x\n"
    )
    monkeypatch.setenv("RUSHLIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ["PYTHONPATH"])
    first = run_python("-c", _FIRST, check=True).stdout.split()
    assert int(first[0]) == 2  # the runtime and the function
    second = run_python("-c", _FIRST, check=True).stdout.split()
    assert int(second[0]) == 0
    assert second[2] == "False", "the compiler of the native language is not even imported"


@pytest.mark.slow
@pytest.mark.skipif(
    host_target().native_vector_bytes == 16, reason="there is no narrower target to take for another machine"
)
def test_code_for_another_machine_is_never_loaded(tmp_path, run_python, monkeypatch):
    """Neither from a directory that machines share, nor where somebody has copied one machine's files over another's."""
    (tmp_path / "test_first_import.py").write_text(
        "from rushlight._native import native\n@native('i64(i64)')\ndef twice(x):\n    return 2 * x\n"
    )
    cache = tmp_path / "cache"
    monkeypatch.setenv("RUSHLIGHT_CACHE_DIR", str(cache))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ["PYTHONPATH"])

    def compiled(width):
        monkeypatch.setenv("RUSHLIGHT_VECTOR_BYTES", str(width))
        return int(run_python("-c", _FIRST, check=True).stdout.split()[0])

    monkeypatch.setenv("RUSHLIGHT_COMPILE_WORKERS", "0")
    assert compiled(0) == 3  # the host's unit, the device's, and the function
    (wide,) = cache.iterdir()
    assert compiled(16) == 3
    (narrow,) = (folder for folder in cache.iterdir() if folder != wide)
    assert compiled(16) == compiled(0) == 0
    for own, foreign in zip(sorted(narrow.glob("*.o")), sorted(wide.glob("*.o")), strict=True):
        own.write_bytes(foreign.read_bytes())  # under the name of its own
        shutil.copy2(foreign, narrow)  # and under the foreign one
    assert compiled(16) == 3


def test_machines_have_fingerprints_of_their_own():
    target = TargetDescription()
    seen = {target.fingerprint}
    for name, value in (
        ("arch", "riscv64"), ("system", "plan9"), ("model", "another"), ("vector_bytes", 8), ("flags", target.flags | {"another"}),
        ("flags", frozenset(sorted(target.flags)[1:])),
    ):  # fmt: skip
        other = TargetDescription()
        setattr(other, name, value)
        seen.add(other.fingerprint)
    assert len(seen) == 7


def test_default_cache_is_the_knobs():
    from rushlight._native.cache import CACHE_DIR

    assert default_cache().root == CACHE_DIR.get()
    with CACHE_DIR.scoped(""):
        assert default_cache().get(KEY) is None
