"""Generators: seeds, states, threads, forks."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import threading

import numpy as np
import pytest

from rushlight._engine.random.random import (
    DEFAULT_SEED,
    STATE_SIZE,
    Generator,
    default_generator,
    fill_normal,
    fill_uniform,
)
from rushlight._types.dtype import BY_NAME

F32, F64 = BY_NAME["float32"], BY_NAME["float64"]


def draw(g: Generator, n: int) -> bytes:
    out = np.zeros(n, np.float32)
    fill_uniform(g, out.ctypes.data, n, F32)
    return out.tobytes()


def test_a_new_generator_starts_from_the_same_seed() -> None:
    a, b = Generator(), Generator("cpu")
    assert a.initial_seed() == b.initial_seed() == DEFAULT_SEED
    assert draw(a, 5) == draw(b, 5)
    assert str(a.device) == "cpu"


def test_manual_seed() -> None:
    g = Generator()
    assert g.manual_seed(3) is g
    first = draw(g, 7)
    assert draw(g, 7) != first
    assert draw(g.manual_seed(3), 7) == first
    # only 32 bits of a seed matter to the engine; all 64 are remembered
    assert draw(g.manual_seed(3 + 2**40), 7) == first
    assert g.initial_seed() == 3 + 2**40
    assert g.manual_seed(-1).initial_seed() == 2**64 - 1
    assert g.manual_seed(np.int64(9)).initial_seed() == 9


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seed_out_of_range(seed: int) -> None:
    with pytest.raises(ValueError, match="Overflow"):
        Generator().manual_seed(seed)


@pytest.mark.parametrize("seed, kind", [(1.5, "float"), ("a", "str"), (True, "bool"), (None, "NoneType")])
def test_seed_of_another_type(seed: object, kind: str) -> None:
    with pytest.raises(RuntimeError, match=f"manual_seed expected a long, but got {kind}"):
        Generator().manual_seed(seed)  # type: ignore[arg-type]


def test_seed_from_the_system() -> None:
    g = Generator()
    seeds = {g.seed() for _ in range(4)}
    assert len(seeds) == 4
    assert g.initial_seed() in seeds
    assert default_generator.initial_seed() != DEFAULT_SEED


def test_state_continues() -> None:
    g, h = Generator().manual_seed(11), Generator()
    for n in (0, 1, 5, 622, 623, 1, 624, 10):
        if n:
            draw(g, n)
        state = g.state_bytes()
        assert len(state) == STATE_SIZE
        h.set_state_bytes(state)
        assert h.state_bytes() == state
        assert draw(h, 1300) == draw(Generator.clone_state(g), 1300)
        assert h.initial_seed() == 11


def test_state_keeps_the_second_normal() -> None:
    g = Generator().manual_seed(1)
    out = np.zeros(3)
    fill_normal(g, out.ctypes.data, 3, F64)
    h = Generator()
    h.set_state_bytes(g.state_bytes())
    a, b = np.zeros(4), np.zeros(4)
    fill_normal(g, a.ctypes.data, 4, F64)
    fill_normal(h, b.ctypes.data, 4, F64)
    assert a.tobytes() == b.tobytes()
    assert g.manual_seed(1).state_bytes() == Generator().manual_seed(1).state_bytes()  # seeding forgets it


def test_states_are_pytorchs() -> None:
    rows = json.loads((pathlib.Path(__file__).parent / "expected.json").read_text())["states"]
    sizes = (0, 1, 100, 622, 623, 624, 625, 1247, 1248, 1249, 3000)
    for n, (_, shape, _, digest) in zip(sizes, rows, strict=True):
        g = Generator().manual_seed(n * 12345678901)
        if n:
            draw(g, n)
        assert shape == [STATE_SIZE]
        assert hashlib.sha256(g.state_bytes()).hexdigest()[:32] == digest, n


def test_bad_states() -> None:
    g = Generator()
    good = g.state_bytes()
    with pytest.raises(RuntimeError, match="of size 5056 but found the input RNG state size to be 10"):
        g.set_state_bytes(good[:10])
    for offset, value in ((8, 0), (8, 625), (12, 0), (16, 625), (16, 600)):
        bad = bytearray(good)
        bad[8:12] = (100).to_bytes(4, "little")
        bad[offset : offset + 4] = value.to_bytes(4, "little")
        with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
            g.set_state_bytes(bytes(bad))
    assert g.state_bytes() == good


def test_other_devices() -> None:
    with pytest.raises(RuntimeError):
        Generator("meta")
    with pytest.raises(RuntimeError, match="device string"):
        Generator("foo")
    for call in (lambda: Generator().get_offset(), lambda: Generator().set_offset(3)):
        with pytest.raises(RuntimeError, match="does not use offset"):
            call()


def test_threads_take_turns() -> None:
    """Four threads draw from one generator; together they get each number of its stream once."""
    g, n = Generator().manual_seed(5), 300_000
    outs = [np.zeros(n) for _ in range(4)]
    threads = [threading.Thread(target=fill_uniform, args=(g, o.ctypes.data, n, F64)) for o in outs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    whole = np.zeros(4 * n)
    fill_uniform(Generator().manual_seed(5), whole.ctypes.data, 4 * n, F64)
    assert np.array_equal(np.sort(np.concatenate(outs)), np.sort(whole))


def test_fork() -> None:
    default_generator.manual_seed(3)
    draw(default_generator, 10)
    default_generator._lock.acquire()  # as if another thread were drawing at the moment of the fork
    try:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write, hashlib.sha256(draw(default_generator, 100)).digest())
            os._exit(0)
    finally:
        default_generator._lock.release()
    os.close(write)
    assert os.read(read, 32) == hashlib.sha256(draw(default_generator, 100)).digest()
    assert os.waitpid(pid, 0)[1] == 0
    os.close(read)
