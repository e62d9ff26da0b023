"""The tiles that recurrent layers take: no thread is left without sequences where six rows a tile would do that."""

from __future__ import annotations

import pytest

from rushlight._backends.cpu.microkernels.register_tile import register_tile
from rushlight._backends.cpu.recurrent import recurrent


@pytest.mark.parametrize(
    ("batch", "rows"),
    [(1, 1), (3, 2), (8, 4), (12, 6), (16, 4), (20, 6), (24, 6), (32, 4), (48, 6), (64, 4), (96, 6), (1000, 6)],
)
def test_rows_of_a_tile_of_32_byte_vectors(monkeypatch, batch, rows):
    usual = register_tile("f32", 32, 16, True)
    monkeypatch.setattr(recurrent, "host_tiles", lambda kind: (usual,))
    monkeypatch.setattr(recurrent, "_TILES", {})
    assert (usual.rows, usual.vectors) == (6, 2)
    assert recurrent._tile("f32", batch).rows == rows


def test_tiles_of_eight_rows_stay(monkeypatch):
    usual = register_tile("f32", 64, 32, True)
    low = type(usual)("f32", 16, 8, 2, True)
    monkeypatch.setattr(recurrent, "host_tiles", lambda kind: (usual, low))
    assert recurrent._tile("f32", 36) is low
