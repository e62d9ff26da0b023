"""A small GPT learns to write like the Python documentation, character by character.

The text ships inside CPython (`pydoc_data.topics`, what `help("for")` prints), so there is nothing to download.

    python -m rushlight examples/gpt_chars.py       with rushlight
    python examples/gpt_chars.py                    with PyTorch: the same program, the same numbers
    ... --compile                                   a step of training is compiled as a whole: the same numbers again

It writes the loss curve, a sample of text and a checkpoint into --out, reloads the checkpoint, and shows that training
goes on from there as if nothing had happened.  Half a minute on 2 cores.
"""

import argparse
import copy
import math
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from tqdm import tqdm


@dataclass
class Config:
    vocab: int = 128  # V: how many different characters there are
    context: int = 128  # T: how many characters the model looks back
    layers: int = 2
    heads: int = 4  # H
    width: int = 128  # C


class Attention(nn.Module):
    """Causal self attention: every position looks at itself and at what came before."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.proj = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)  # (B, T, C) each
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)  # (B, H, T, C/H)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)  # (B, H, T, C/H)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)  # (B, H, T, C/H)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, C/H)
        y = y.transpose(1, 2).contiguous().view(B, T, C)  # (B, T, C)
        return self.proj(y)


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc = nn.Linear(config.width, 4 * config.width)
        self.gelu = nn.GELU()
        self.proj = nn.Linear(4 * config.width, config.width)

    def forward(self, x):
        return self.proj(self.gelu(self.fc(x)))  # (B, T, C) -> (B, T, 4C) -> (B, T, C)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x  # (B, T, C)


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab, config.width)  # what the character is
        self.wpe = nn.Embedding(config.context, config.width)  # where it stands
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.ln_f = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.apply(self._init_weights)
        # What is added to the residual stream in every layer starts small, so that depth does not blow it up.
        for name, p in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.layers))
        self.head.weight = self.wte.weight  # weight tying: reading and writing share one table

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        B, T = idx.shape
        pos = torch.arange(T, device=idx.device)  # (T,)
        x = self.wte(idx) + self.wpe(pos)  # (B, T, C) + (T, C)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))  # (B, T, V)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(B * T, -1), targets.reshape(B * T))

    @torch.no_grad()
    def generate(self, idx, count, temperature=0.8, top_k=20):
        for _ in range(count):
            logits, _ = self(idx[:, -self.config.context :])  # (B, T, V)
            logits = logits[:, -1, :] / temperature  # (B, V)
            best, _ = torch.topk(logits, top_k)  # (B, top_k)
            logits = logits.masked_fill(logits < best[:, [-1]], -float("inf"))
            probs = F.softmax(logits, dim=-1)  # (B, V)
            idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)  # (B, T + 1)
        return idx

    def make_optimizer(self, lr, weight_decay):
        """Decay what multiplies (matrices), not what shifts (biases, norms)."""
        params = list(self.parameters())
        groups = [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def read_text(path):
    if path:
        return Path(path).read_text(encoding="utf-8")
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def get_batch(data, batch, context):
    start = torch.randint(len(data) - context, (batch,))  # (B,)
    x = torch.stack([data[i : i + context] for i in start.tolist()])  # (B, T)
    y = torch.stack([data[i + 1 : i + 1 + context] for i in start.tolist()])  # (B, T), one character later
    return x, y


def make_schedule(optimizer, steps):
    """Warm up over the first steps, then follow a cosine down to a tenth."""
    warmup = max(1, steps // 20)

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        progress = (step - warmup) / max(1, steps - warmup)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, progress)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def learn(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    _, loss = model(x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def train_step(model, optimizer, scheduler, x, y):
    loss = learn(model, optimizer, x, y)
    scheduler.step()
    return loss.item()


def seconds_eager(model, args, x, y, count=20):
    """What the same step takes without compiling it, on a copy: the median."""
    model, times = copy.deepcopy(model), []
    optimizer = model.make_optimizer(lr=args.lr, weight_decay=0.1)
    for _ in range(count):
        began = time.perf_counter()
        learn(model, optimizer, x, y).item()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


@torch.no_grad()
def estimate_loss(model, data, batch, batches=8):
    model.eval()
    losses = [model(*get_batch(data, batch, model.config.context))[1].item() for _ in range(batches)]
    model.train()
    return sum(losses) / len(losses)


def save_curve(losses, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    smooth, mean = [], losses[0]
    for loss in losses:
        mean = 0.95 * mean + 0.05 * loss
        smooth.append(mean)
    fig, ax = plt.subplots(figsize=(7, 4))
    ax.plot(losses, alpha=0.3, label="loss")
    ax.plot(smooth, label="smoothed")
    ax.set_xlabel("step")
    ax.set_ylabel("cross entropy per character")
    ax.legend()
    fig.tight_layout()
    fig.savefig(path, dpi=120)
    plt.close(fig)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="training steps")
    parser.add_argument("--batch", type=int, default=16, help="sequences in a batch")
    parser.add_argument("--lr", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--sample", type=int, default=400, help="characters to write at the end")
    parser.add_argument("--compile", action="store_true", help="compile a step of training, and say what that gains")
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    parser.add_argument("--text", help="learn from this file instead")
    parser.add_argument("--out", type=Path, default=Path("out/gpt_chars"), help="where results go")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)

    # ***** data: every character becomes a number *****
    text = read_text(args.text)
    chars = sorted(set(text))
    number = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([number[c] for c in text], device=args.device)  # (N,)
    cut = int(0.9 * len(data))
    train, val = data[:cut], data[cut:]

    # ***** model *****
    config = Config(vocab=len(chars))
    model = GPT(config).to(args.device)
    optimizer = model.make_optimizer(lr=args.lr, weight_decay=0.1)
    scheduler = make_schedule(optimizer, args.steps)
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(text):,} characters, {len(chars)} different; {count:,} parameters")

    # ***** train *****
    step = torch.compile(learn) if args.compile else learn
    losses, times = [], []
    began = time.perf_counter()
    bar = tqdm(range(args.steps), desc="gpt_chars", unit="step")
    for _ in bar:
        x, y = get_batch(train, args.batch, config.context)  # (B, T) each
        before = time.perf_counter()
        losses.append(step(model, optimizer, x, y).item())
        times.append(time.perf_counter() - before)
        scheduler.step()
        bar.set_postfix(loss=f"{losses[-1]:.4f}")
    took = time.perf_counter() - began

    # ***** results *****
    val_loss = estimate_loss(model, val, args.batch)
    print(f"trained in {took:.1f} s, {took / args.steps * 1000:.0f} ms a step")
    if args.compile:
        usual, eager = statistics.median(times), seconds_eager(model, args, x, y)
        print(
            f"a step without its data: {usual * 1000:.1f} ms compiled, {eager * 1000:.1f} ms as it is; first call {times[0]:.1f} s"
        )
    print(f"training loss {losses[0]:.4f} -> {losses[-1]:.4f}, validation loss {val_loss:.4f}")
    (args.out / "losses.txt").write_text("".join(f"{loss:.6f}\n" for loss in losses))
    save_curve(losses, args.out / "loss.png")

    # ***** save, load, go on *****
    path = args.out / "checkpoint.pt"
    torch.save(
        {
            "config": asdict(config),
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        },
        path,
    )
    checkpoint = torch.load(path)
    again = GPT(Config(**checkpoint["config"])).to(args.device)
    again.load_state_dict(checkpoint["model"])
    again_optimizer = again.make_optimizer(lr=args.lr, weight_decay=0.1)
    again_scheduler = make_schedule(
        again_optimizer, args.steps
    )  # sets the first learning rate, so it comes before loading
    again_optimizer.load_state_dict(checkpoint["optimizer"])
    again_scheduler.load_state_dict(checkpoint["scheduler"])
    for _ in range(2):  # the second loss shows that the optimizer's state came back too
        x, y = get_batch(train, args.batch, config.context)
        here = train_step(model, optimizer, scheduler, x, y)
        there = train_step(again, again_optimizer, again_scheduler, x, y)
        print(f"next step: loss {here:.6f}, from the reloaded checkpoint {there:.6f}")
        if abs(here - there) > 1e-6:
            raise SystemExit("the reloaded model is not the model that was saved")

    # ***** write *****
    again.eval()
    prompt = torch.tensor([[number[c] for c in "The "]], device=args.device)  # (1, 4)
    written = "".join(chars[i] for i in again.generate(prompt, args.sample)[0].tolist())
    (args.out / "sample.txt").write_text(written, encoding="utf-8")
    print(f"a sample:\n{written}\n")
    print(f"results are in {args.out}")


if __name__ == "__main__":
    main()
