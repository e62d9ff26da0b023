"""CRC-32 by carry-less products beside zlib's."""

from __future__ import annotations

import random
import zlib

import pytest

from rushlight._base.lazy import llvm
from rushlight._host import checksum
from rushlight._host.checksum import crc32, fold_kernel, fold_text, fold_width, joined
from rushlight._native.target import host_target

SIZES = [0, 1, 3, 4095, 4096, 4097, 4096 + 255, 5000, 8191, 65536, 100_003]


@pytest.mark.parametrize("size", SIZES)
def test_as_zlib(size: int) -> None:
    numbers = random.Random(size)
    data = bytearray(numbers.randbytes(size + 3))
    for shift in (0, 1, 3):
        part = memoryview(data)[shift : shift + size]
        assert crc32(part) == zlib.crc32(part)
        start = numbers.getrandbits(32)
        assert crc32(part, start) == crc32(bytes(part), start) == zlib.crc32(part, start)
    assert crc32(memoryview(data)[size // 2 :], crc32(memoryview(data)[: size // 2])) == zlib.crc32(data)


def test_parts_are_joined() -> None:
    numbers = random.Random(1)
    data = numbers.randbytes(70_001)
    for at in (0, 1, 5, 4096, 65_536, 70_000, 70_001):
        assert joined(zlib.crc32(data[:at]), zlib.crc32(data[at:]), len(data) - at) == zlib.crc32(data)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_narrower_vectors(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = host_target()
    if width > fold_width(target):
        pytest.skip("the machine has no such vectors")
    kernel = fold_kernel(target.arch, width)
    monkeypatch.setattr(checksum, "_kernel", lambda: kernel)
    data = memoryview(bytearray(random.Random(width).randbytes(20_011)))
    assert crc32(data, 77) == zlib.crc32(data, 77)


def test_machines_without_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "fold_width", lambda target: 0)
    data = memoryview(bytearray(random.Random(0).randbytes(9000)))
    assert crc32(data, 5) == zlib.crc32(data, 5)


def test_arm() -> None:
    """Compiles for ARM, where there is one product for each 16 bytes."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(features="+neon,+aes", opt=2)
    assembly = machine.emit_assembly(llvm.parse_assembly(fold_text("aarch64", 16)))
    assert "pmull" in assembly and "pmull2" in assembly
