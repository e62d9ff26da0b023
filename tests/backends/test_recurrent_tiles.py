"""The tiles that recurrent layers take: no thread is left without sequences where six rows a tile would do that."""

from __future__ import annotations

import pytest

from rushlight._backends.cpu.microkernels.register_tile import register_tile
from rushlight._backends.cpu.recurrent import recurrent
from rushlight._backends.cpu.recurrent.recurrent_native import Shape
from rushlight._prims.nn.recurrent_cell import GATES


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


@pytest.mark.parametrize(("mode", "blocks"), [("lstm", 2), ("gru", 2), ("tanh", 2)])
def test_groups_of_units_are_whole_lines(mode, blocks):
    """With vectors of 32 bytes two of them, unless units would be computed for nothing; with wider ones as it was."""
    low, wide = register_tile("f32", 32, 16, True), register_tile("f32", 64, 32, True)
    made = {units: Shape(mode, "f32", low, low, False, units) for units in (0, 24, 256)}
    usual = made[0].blocks
    assert made[256].blocks == blocks and made[24].blocks == usual <= blocks
    assert made[24].name == made[0].name and (usual == blocks) == (made[256].name == made[0].name)
    assert Shape(mode, "f32", wide, wide, False, 256).name == Shape(mode, "f32", wide, wide).name
    if usual < blocks:
        assert made[256].panels * made[256].vectors == blocks * GATES[mode]
