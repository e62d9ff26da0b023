"""A training step of each model of `bench/models.py`: convolutional, encoders, decoders."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import rushlight as torch
from models import MODELS

for make in MODELS.values():
    torch.manual_seed(0)
    step = make(torch)
    step()
