"""Packages for some of the sizes that a program takes."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn
from rushlight._cli.package import main
from rushlight_loader import load

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="packages are for Linux on x86-64"
)


def test_a_size_without_an_end_gets_one(tmp_path, capsys):
    torch.manual_seed(0)
    layer = nn.Linear(3, 2).eval()
    shapes = ({0: torch.export.Dim("batch", min=2)},)
    program, path = torch.export.export(layer, (torch.ones(4, 3),), dynamic_shapes=shapes), str(tmp_path / "layer.pt2")
    torch.export.save(program, path)
    (name,) = map(str, program.range_constraints)
    given = [path, "-o", str(tmp_path / "layer.rlp"), "--levels", "x86-64-v3"]
    assert (
        main(given) == 1
        and f"give torch.export.Dim a max, or the command --size {name}=LEAST:MOST" in capsys.readouterr().err
    )
    for limit, said in (
        (f"{name}=0:3", "is from 2 to"),
        (f"{name}=5:3", "not from 5 to 3"),
        ("other=2:3", "the program has no size other"),
        (f"{name}=few", "NAME=LEAST:MOST is expected"),
    ):
        assert main([*given, "--size", limit]) == 1
        assert said in capsys.readouterr().err
    assert main([*given, "--size", f"{name}=2:5"]) == 0
    package = load(tmp_path / "layer.rlp")
    for rows in (2, 3, 5):
        x = torch.randn(rows, 3)
        assert np.allclose(package(x.numpy()), layer(x).detach().numpy(), atol=1e-6)
    with pytest.raises(ValueError, match="is from 2 to 5 in this package, not 6"):
        package(np.ones((6, 3), np.float32))
