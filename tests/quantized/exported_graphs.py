"""Models quantized through `torchao`'s exported graphs, without and with training; a table of what they are goes to a file.

    python -m rushlight tests/quantized/exported_graphs.py out.json [cnn] [mlp] [dynamic] [trained]

`exported_graphs.json` holds what real PyTorch 2.13 with torchao 0.18 writes (`python tests/quantized/exported_graphs.py ...`).
"""

import json
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
import torchao.quantization.pt2e as pt2e
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

warnings.simplefilter("ignore")


def fill(shape, seed):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


class Images(nn.Module):
    """Two convolutions with batch norms, a residual, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.b1(self.c1(x))), 2)
        x = torch.relu(self.b2(self.c2(x)) + x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 2), 1))


class Layers(nn.Module):
    """Two linear layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def seeded(model):
    """Parameters and statistics that depend on no framework's random numbers."""
    with torch.no_grad():
        for number, (name, p) in enumerate([*model.named_parameters(), *model.named_buffers()]):
            if p.is_floating_point():
                values = fill(tuple(p.shape), number) * (0.3 if p.dim() > 1 else 0.1)
                scale = "var" in name or name in ("b1.weight", "b2.weight")
                p.copy_(values.abs() + 0.5 if scale else values)
    return model


def trained(m, shape):
    """Three steps of training."""
    steps = torch.optim.SGD(m.parameters(), lr=0.01)
    for step in range(3):
        loss = (m(fill(shape, 50 + step)) ** 2).mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
    return float(loss.detach())


def quantized(model, x, qat=False, **config):
    """The converted graph, what it should compute, and the last loss of its training."""
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_qat=qat, **config))
    exact, loss, shape = model(x).detach(), 0.0, tuple(x.shape)
    m = torch.export.export(model, (x,)).module()
    if qat:
        m = prepare_qat_pt2e(m, quantizer)
        loss = trained(m, shape)
        pt2e.move_exported_model_to_eval(m)
        exact = m(x).detach()
    else:
        m = prepare_pt2e(m, quantizer)
        for step in range(3):
            m(fill(shape, 50 + step))
    made = convert_pt2e(m)
    pt2e.move_exported_model_to_eval(made)
    return made, exact, loss


def of_bytes(made, exact, x):
    """Decibels with products of bytes, and how many products are so."""
    if "rushlight" not in torch.__file__:
        return None
    from torch.ao.quantization.exported import IntegerProduct, with_integer_products

    module = with_integer_products(made)
    with torch.no_grad():
        y = module(x)
    count = sum(isinstance(m, IntegerProduct) for m in module.modules())
    return float(20 * torch.log10(exact.norm() / (exact - y).norm())), count


def row(made, exact, loss, x):
    """What is compared: operators, integer weights, results, decibels."""
    with torch.no_grad():
        y = made(x)
        again = torch.compile(made)(x) if "rushlight" in torch.__file__ else y
    found = {
        "loss": loss,
        "decibels": float(20 * torch.log10(exact.norm() / (exact - y).norm())),
        "compiled": float((again - y).abs().max()),
        "results": y.reshape(-1)[:16].tolist(),
        "weights": {k: v.flatten().tolist() for k, v in made.state_dict().items() if v.dtype == torch.int8},
        "operators": [str(n.target) for n in made.graph.nodes if n.op == "call_function"],
    }
    return {**found, "bytes": of_bytes(made, exact, x)}


CASES = {
    "cnn": lambda x, y: (quantized(seeded(Images()).eval(), x), x),
    "mlp": lambda x, y: (quantized(seeded(Layers()).eval(), y), y),
    "dynamic": lambda x, y: (quantized(seeded(Layers()).eval(), y, is_dynamic=True), y),
    "trained": lambda x, y: (quantized(seeded(Images()).train(), x, qat=True), x),
}

if __name__ == "__main__":
    table = {}
    for name in sys.argv[2:] or CASES:
        made, x = CASES[name](fill((2, 3, 8, 8), 7), fill((4, 16), 7))
        table[name] = row(*made, x)
    with open(sys.argv[1], "w") as file:
        json.dump(table, file)
