"""Objects that come with the package: found by digests of the sources, the same results, and nothing believed that is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rushlight._base.digest import digest
from rushlight._native import objectcode, shipped
from rushlight._native.cache import ObjectCache, key_of
from rushlight._native.shipped import Pack, fingerprint_of, write_pack
from rushlight._native.target import LEVELS, TARGET, VECTOR_BYTES, TargetDescription, aim_at, host_target, level_of

ROOT = Path(__file__).resolve().parents[2]
LEVEL = LEVELS[0]
LLVM = digest(b"version")


def pack_of(path, *contents: bytes) -> Pack:
    fingerprint = fingerprint_of(LEVEL, LLVM)
    write_pack(str(path), LLVM, {key_of(fingerprint, ("test", str(n))): data for n, data in enumerate(contents)})
    return Pack(str(path), LEVEL)


def test_a_pack_gives_what_was_put_into_it(tmp_path):
    pack = pack_of(tmp_path / "a.pack", b"first", b"second", b"", b"second")
    assert [pack.get(("test", str(n))) for n in range(5)] == [b"first", b"second", b"", b"second", None]
    assert [pack.has(("test", str(n))) for n in (0, 4)] == [True, False]
    assert pack.get(("test0", "")) is None, "parts are told apart by their lengths"
    assert (tmp_path / "a.pack").read_bytes().count(b"second") == 1


def test_another_level_or_llvm_finds_nothing(tmp_path):
    pack_of(tmp_path / "a.pack", b"object")
    assert Pack(str(tmp_path / "a.pack"), LEVELS[1]).get(("test", "0")) is None
    assert fingerprint_of(LEVEL, LLVM) != fingerprint_of(LEVEL, digest(b"another"))


@pytest.mark.parametrize(
    "damage",
    [lambda d: b"", lambda d: d[:10], lambda d: d[:60], lambda d: d[:-60] if len(d) < 60 else d[:100], lambda d: b"x" + d[1:],
     lambda d: d[:49] + b"\xff" * 8 + d[57:], lambda d: d[:80] + bytes([d[80] ^ 1]) + d[81:]],
    ids=["empty", "head cut", "table cut", "shorter", "other magic", "huge table", "changed row"],
)  # fmt: skip
def test_a_damaged_table_counts_as_none(tmp_path, damage):
    path = tmp_path / "a.pack"
    pack_of(path, b"first", b"second")
    path.write_bytes(damage(path.read_bytes()))
    pack = Pack(str(path), LEVEL)
    assert pack.rows == {}
    assert pack.get(("test", "0")) is None


def test_damaged_contents_count_as_missing(tmp_path):
    path = tmp_path / "a.pack"
    pack = pack_of(path, b"first", b"second")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert [pack.get(("test", str(n))) for n in range(2)] == [b"first", None]
    path.unlink()
    assert pack.get(("test", "0")) is None
    assert Pack(str(tmp_path / "none.pack"), LEVEL).rows == {}


def test_obtain_prefers_the_cache_then_the_pack(tmp_path, monkeypatch):
    pack = pack_of(tmp_path / "a.pack", b"shipped")
    cache = ObjectCache(str(tmp_path / "cache"), "machine")
    monkeypatch.setattr(objectcode, "default_cache", lambda: cache)
    monkeypatch.setattr(objectcode, "shipped_pack", lambda: pack)
    never = lambda: pytest.fail("nothing is compiled")
    assert objectcode.obtain("none", never, "test", "0") == b"shipped"
    assert not os.path.exists(tmp_path / "cache"), "what is shipped is not copied"
    cache.put(cache.key("test", "0"), b"kept")
    assert objectcode.obtain("none", never, "test", "0") == b"kept"


def test_levels_of_machines():
    target = TargetDescription()
    for level in LEVELS:
        target.arch, target.system, target.flags, target.vector_bytes = (
            level.arch,
            "linux",
            level.flags,
            level.vector_bytes,
        )
        assert level_of(target) is level
        target.flags = frozenset(sorted(level.flags)[1:])
        assert level_of(target) is not level
    target.arch = "riscv64"
    assert level_of(target) is None


def test_a_target_that_this_machine_is_not():
    with TARGET.scoped("x86-64-v9"), pytest.raises(ValueError, match="RUSHLIGHT_TARGET must be one of"):
        TargetDescription()
    target = TargetDescription()
    missing = [level for level in LEVELS if level.arch == target.arch and not level.flags <= target.flags]
    for level in missing:
        with TARGET.scoped(level.name), pytest.raises(ValueError, match="this machine lacks"):
            TargetDescription()
    for level in LEVELS:
        if level.arch == target.arch and level not in missing:
            with TARGET.scoped(level.name):
                made = TargetDescription()
            assert (made.flags, made.vector_bytes, made.level) == (level.flags, level.vector_bytes, level)
            assert made.fingerprint != host_target().fingerprint


_PROGRAM = """
import rushlight as torch
from rushlight import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 64, 16), nn.LayerNorm(16))
x = torch.randn(4, 3, 8, 8)
loss = nn.functional.cross_entropy(net(x), torch.tensor([1, 2, 3, 4]))
loss.backward()
import sys
print(loss.item().hex(), *[p.grad.double().sum().item().hex() for p in net.parameters()], "llvmlite.binding" in sys.modules)
"""


@pytest.mark.slow
def test_the_tool_ships_what_a_program_needs(tmp_path):
    """Where all is shipped LLVM is not even loaded, and the results have the same bits; an object that is missing is compiled."""
    level = level_of(host_target())
    if level is None:
        pytest.skip("no level for this machine")
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    tool = [str(ROOT / "tools" / "ship_objects.py"), "--only", level.name, "--program", str(program)]
    env = {**os.environ, "RUSHLIGHT_GEMM": "fixed"}  # nothing is chosen by measurement
    subprocess.run([sys.executable, *tool, "--out", str(tmp_path / "packs")], env=env, check=True, timeout=600)
    run = f"from rushlight._native import shipped; shipped.FOLDER = {str(tmp_path / 'packs')!r}\n{_PROGRAM}"

    def results(cache: str, **more: str) -> list[str]:
        setting = {**env, "RUSHLIGHT_CACHE_DIR": str(tmp_path / cache), **more}
        done = subprocess.run(
            [sys.executable, "-c", run], env=setting, check=True, timeout=600, capture_output=True, text=True
        )
        return done.stdout.split()

    own = results("own", RUSHLIGHT_SHIPPED="0")
    assert own[-1] == "True"
    assert results("other") == [*own[:-1], "False"]
    assert results("", RUSHLIGHT_CACHE_DIR="")[:-1] == own[:-1], "without a cache too"
    assert shipped.FOLDER.endswith("packs")


def test_a_process_is_told_what_to_make_code_for():
    """What is loaded already stays that of this machine; code made from then on is for the generic one."""
    own = host_target()
    level = next((each for each in LEVELS if each.arch == own.arch and each.flags <= own.flags), None)
    if level is None:
        pytest.skip("no generic machine stands for this one")
    try:
        aim_at(level.name)
        assert host_target().level is level and host_target().vector_bytes == level.vector_bytes
    finally:
        TARGET.reset()
        VECTOR_BYTES.reset()
        host_target.__globals__["_HOST"][:] = [own]
