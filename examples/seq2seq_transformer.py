"""A Transformer translates numbers from English into digits: "four thousand and seven" -> 4007.

"Attention Is All You Need", Vaswani et al., 2017 (arXiv:1706.03762): an encoder reads all words at once, a decoder
writes one digit after the other and looks at what it has written and at what was read.  The zeros are not said in
English, so the decoder must count.

    python -m rushlight examples/seq2seq_transformer.py     with rushlight
    python examples/seq2seq_transformer.py                  with PyTorch: the same program, the same numbers
"""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
SOURCE = ["<pad>", *ONES, *TENS, "hundred", "thousand", "and"]
TARGET = ["<pad>", "<begin>", "<end>", *"0123456789"]
PAD, BEGIN, END = 0, 1, 2


def in_words(n):
    """4007 -> ["four", "thousand", "and", "seven"]"""
    words = []
    if n >= 1000:
        words += [ONES[n // 1000], "thousand"]
    if n % 1000 >= 100:
        words += [ONES[n % 1000 // 100], "hundred"]
    rest = n % 100
    if words and rest:
        words.append("and")
    if rest >= 20:
        words.append(TENS[rest // 10 - 2])
        rest %= 10
        return words + ([ONES[rest]] if rest else [])
    return words + ([ONES[rest]] if rest or not words else [])


def batch(numbers, device="cpu"):
    """Words (B, S) and digits between <begin> and <end> (B, T), padded at the end."""
    source = [torch.tensor([SOURCE.index(w) for w in in_words(n)]) for n in numbers]
    target = [torch.tensor([BEGIN, *(TARGET.index(d) for d in str(n)), END]) for n in numbers]
    return pad_sequence(source, batch_first=True).to(device), pad_sequence(target, batch_first=True).to(device)


class Positions(nn.Module):
    """Adds waves of many lengths, from which the place of a token can be read."""

    def __init__(self, width, longest=16):
        super().__init__()
        place = torch.arange(longest).unsqueeze(1)  # (T, 1)
        speed = torch.exp(torch.arange(0, width, 2) * (-math.log(100.0) / width))  # (C/2,)
        waves = torch.stack((torch.sin(place * speed), torch.cos(place * speed)), dim=2).flatten(1)  # (T, C)
        self.register_buffer("waves", waves)

    def forward(self, x):  # (B, T, C)
        return x + self.waves[: x.shape[1]]


class Translator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.width = width
        self.read, self.write = nn.Embedding(len(SOURCE), width), nn.Embedding(len(TARGET), width)
        self.positions = Positions(width)
        self.transformer = nn.Transformer(
            width,
            nhead=4,
            num_encoder_layers=2,
            num_decoder_layers=2,
            dim_feedforward=128,
            dropout=0.0,
            batch_first=True,
        )
        self.head = nn.Linear(width, len(TARGET))

    def forward(self, source, target):  # (B, S), (B, T)
        x = self.positions(self.read(source) * math.sqrt(self.width))  # (B, S, C)
        y = self.positions(self.write(target) * math.sqrt(self.width))  # (B, T, C)
        T = target.shape[1]
        later = torch.ones(T, T, dtype=torch.bool, device=target.device).triu(
            1
        )  # True where a digit would see what comes after it
        padding = source == PAD
        y = self.transformer(
            x, y, tgt_mask=later, src_key_padding_mask=padding, memory_key_padding_mask=padding, tgt_is_causal=True
        )
        return self.head(y)  # (B, T, digits)

    @torch.no_grad()
    def translate(self, source, longest=6):
        """Greedy: always the digit that seems most likely, until <end>."""
        target = torch.full((len(source), 1), BEGIN, device=source.device)
        for _ in range(longest):
            best = self(source, target)[:, -1].argmax(1, keepdim=True)  # (B, 1)
            target = torch.cat((target, best), dim=1)
        rows = ["".join(TARGET[i] for i in row[1:]) for row in target.tolist()]
        return [row.split("<end>")[0] for row in rows]


def split(seed=0):
    """Numbers to learn from, numbers to test on: 500 of ten thousand are never shown."""
    order = torch.randperm(10_000, generator=torch.Generator().manual_seed(seed)).tolist()
    return order[500:], order[:500]


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of all steps and the translator."""
    torch.manual_seed(seed)
    learn, _ = split()
    model = Translator().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 40, 1.0) * max(0.02, 1 - step / max(steps, 40))
    )
    losses = []
    for step in range(steps):
        picked = torch.randint(len(learn), (64,)).tolist()
        source, target = batch([learn[i] for i in picked], device)
        logits = model(source, target[:, :-1])  # for every digit, what comes next
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 50 == 49:
            log(f"step {step + 1}: loss {losses[-1]:.4f}")
    return losses, model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    losses, model = train(args.steps, args.seed, log=print, device=args.device)
    model.eval()
    _, test = split()
    written = model.translate(batch(test, args.device)[0])
    for n, digits in list(zip(test, written))[:5]:
        print(f"{' '.join(in_words(n))} -> {digits}")
    found = sum(digits == str(n) for n, digits in zip(test, written)) / len(test)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; {found:.1%} of 500 new numbers are translated without fault")
    if found < 0.95:
        raise SystemExit(f"it should be 95% (after 400 steps, the default); it made {args.steps}")


if __name__ == "__main__":
    main()
