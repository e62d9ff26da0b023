"""`torch.utils.mobile_optimizer`: frozen copies of TorchScript modules, and warnings of what they do not need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.utils.mobile_optimizer import MobileOptimizerType, generate_mobile_module_lints, optimize_for_mobile


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.dropout = torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.norm(self.conv(x)).relu())

    @torch.jit.export
    def other(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def operators(module: Any) -> list[str]:
    return [name for name in torch.jit.export_opnames(module) if "norm" in name or name == "aten::dropout"]


def test_modules_are_frozen_and_left_as_they_were() -> None:
    module = torch.jit.script(Net())
    module.norm.eval()
    names = [lint["name"] for lint in generate_mobile_module_lints(module)]
    assert names[:6] == ["BUNDLED_INPUT", *["REQUIRES_GRAD"] * 4, "BATCHNORM"] and "DROPOUT" in names
    frozen = optimize_for_mobile(module, preserved_methods=["other"])
    assert (module.training, module.norm.training, module.dropout.training) == (True, False, True)
    x = torch.randn(1, 1, 5, 5)
    np.testing.assert_allclose(frozen(x).numpy(), module.eval()(x).detach().numpy(), atol=1e-6)
    assert not list(frozen.parameters()) and not operators(frozen) and frozen.other(x).equal(x + 1)
    kept = optimize_for_mobile(module, {MobileOptimizerType.CONV_BN_FUSION, MobileOptimizerType.REMOVE_DROPOUT})
    assert operators(kept) == ["aten::batch_norm", "aten::dropout"]


def test_refusals() -> None:
    module = torch.jit.script(Net())
    with pytest.raises(TypeError, match="but ScriptModule is expected"):
        optimize_for_mobile(Net())
    with pytest.raises(AttributeError, match="do not exist in script_module: zz"):
        optimize_for_mobile(module, preserved_methods=["zz"])
    with pytest.raises(TypeError, match="Unknown backend"):
        optimize_for_mobile(module, backend="x")
    with pytest.raises(NotImplementedError, match="Metal"):
        optimize_for_mobile(module, backend="Metal")
