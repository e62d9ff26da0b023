"""`python tests/jit/graphs/store.py` writes the graphs that PyTorch prints for `programs.py` to `printed.json`."""

from __future__ import annotations

import json
from pathlib import Path

import torch

import programs  # beside this file

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    found = {name: text.replace(f"{FOLDER}/", "") for name, text in programs.made(torch)}
    (FOLDER / "printed.json").write_text(json.dumps(found, indent=0) + "\n")
