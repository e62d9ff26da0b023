"""The GPT of the examples, trained for a while, in int8: after training (static) and with training (QAT).

    python -m rushlight tests/quantized/gpt_accuracy.py

Prints a line for each form: its loss on text that it has not seen, and how much worse than the float model's it is.
"""

import copy
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.ao import quantization as q

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from gpt_chars import GPT, Config, read_text

warnings.simplefilter("ignore")
BATCH = 16


def batches(data: torch.Tensor, context: int, count: int, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Windows of the text, and what follows each of their characters."""
    draw, found = torch.Generator().manual_seed(seed), []
    for _ in range(count):
        places = torch.randint(len(data) - context - 1, (BATCH,), generator=draw)
        rows = torch.stack([data[i : i + context + 1] for i in places.tolist()])
        found.append((rows[:, :-1], rows[:, 1:]))
    return found


def train(model: nn.Module, data: torch.Tensor, steps: int, lr: float, seed: int) -> None:
    """AdamW over windows of the text."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
    for x, y in batches(data, CONFIG.context, steps, seed):
        optimizer.zero_grad()
        model(x, y)[1].backward()
        optimizer.step()


@torch.no_grad()
def loss(model: nn.Module, data: torch.Tensor) -> float:
    """The mean loss over windows of other text."""
    found = [model(x, y)[1].item() for x, y in batches(data, CONFIG.context, 12, 99)]
    return sum(found) / len(found)


def wrapped(model: nn.Module, qconfig: q.QConfig) -> nn.Module:
    """The linear layers of the blocks between stubs: what they read and give is quantized, the rest stays in floats."""
    made = copy.deepcopy(model)
    for block in made.blocks:
        for owner in (block.attn, block.mlp):
            for name, child in list(owner.named_children()):
                if isinstance(child, nn.Linear):
                    held = q.QuantWrapper(child)
                    held.qconfig = qconfig
                    setattr(owner, name, held)
    return made


def static(model: nn.Module, data: torch.Tensor) -> nn.Module:
    """Int8 after training: scales from a few batches."""
    made = q.prepare(wrapped(model.eval(), q.get_default_qconfig("x86")))
    loss_of = batches(data, CONFIG.context, 8, 7)
    with torch.no_grad():
        for x, _ in loss_of:
            made(x)
    return q.convert(made)


def aware(model: nn.Module, data: torch.Tensor, steps: int) -> nn.Module:
    """Int8 with training: the last steps see the rounding."""
    made = q.prepare_qat(wrapped(model.train(), q.get_default_qat_qconfig("x86")))
    train(made, data, steps, 3e-4, 11)
    return q.convert(made.eval())


CONFIG = Config(vocab=128, context=64, layers=2, heads=4, width=64)

if __name__ == "__main__":
    torch.manual_seed(0)
    text = torch.tensor([min(ord(c), 127) for c in read_text(None)])
    seen, other = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    base = GPT(CONFIG)
    train(base, seen, 250, 2e-3, 1)
    more = copy.deepcopy(base)
    train(more.train(), seen, 50, 3e-4, 11)
    floats, later = loss(base.eval(), other), loss(more.eval(), other)
    print(f"float: {floats:.4f}, and {later:.4f} after more training")
    for name, made, beside in (("static int8", static(base, seen), floats), ("QAT int8", aware(base, seen, 50), later)):
        found = loss(made, other)
        print(f"{name}: {found:.4f} {100 * (found / beside - 1):+.3f} %", flush=True)
