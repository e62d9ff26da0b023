"""`torch._dynamo.backends.common`: backends that get graphs of aten operators."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight._subclasses import FakeTensorMode
from rushlight.compiler.aot_backends import aot_autograd, device_from_inputs, dtype_from_inputs, fake_tensor_unsupported


def test_forward_and_backward_reach_the_compilers() -> None:
    seen: list[list[str]] = []

    def compiler(gm: Any, inputs: Any) -> Any:
        seen.append(sorted(str(node.target) for node in gm.graph.nodes if node.op == "call_function"))
        return gm.forward

    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: (x.sin() * 2).sum(), backend=aot_autograd(fw_compiler=compiler))(x).backward()
    assert x.grad is not None and torch.allclose(x.grad, 2 * torch.ones(3).cos())
    assert seen[0] == ["aten.mul.Tensor", "aten.sin.default", "aten.sum.default"] and "aten.cos.default" in seen[1]


def test_what_backends_ask_of_their_inputs() -> None:
    assert device_from_inputs([3]) == torch.device("cpu") and dtype_from_inputs([3]) is torch.float32
    assert dtype_from_inputs([3, torch.ones(1, dtype=torch.int8)]) is torch.int8
    backend = fake_tensor_unsupported(lambda model, inputs: inputs)
    with FakeTensorMode() as mode:
        fake = torch.ones(2, 3)
    assert isinstance(fake, type(mode.from_tensor(torch.ones(1))))
    (real, number) = backend(None, [fake, 4])
    assert type(real) is torch.Tensor and real.shape == (2, 3) and number == 4
