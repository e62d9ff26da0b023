"""A GPT that answers from a paged cache, and its packages: what `server.py` serves.

    python -m rushlight examples/serve/model.py --out served          a model of chance weights, compiled ahead of time
    python -m rushlight examples/serve/model.py --out served --checkpoint gpt.pt

Keys and values of all sequences lie in pages of 16 positions.  A call gets the whole cache and, for each sequence, a table of its pages; it returns the keys
and values of the new positions, and who called it puts them into the pages.  So a call changes nothing, and can be compiled ahead of time.
"""

import argparse
import json
import os
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 256  # V: bytes
    layers: int = 6  # L
    heads: int = 8  # H
    width: int = 256  # C
    page: int = 16  # K: positions in a page
    pages: int = 8  # P: pages of one sequence, at most
    slots: int = 16  # B: sequences in one call, at most
    chunk: int = 16  # S: positions of a prompt in one call

    @property
    def context(self) -> int:
        return self.page * self.pages


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, C = config.heads, config.width
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        self.fc, self.out = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x, past_k, past_v, mask):
        """x (B, S, C); past_k, past_v (B, T, H, D); mask (B, S, T + S, 1): whether a position may be looked at.

        Scores are sums over products, which the compiler makes while it reads the pages: nothing is copied out of them.
        """
        B, S, C = x.shape
        T, D = past_k.shape[1], C // self.heads
        q, k, v = (y.view(B, S, self.heads, D) for y in self.qkv(self.ln_1(x)).split(C, dim=2))
        before, among = ((q[:, :, None] * y[:, None]).sum(-1) for y in (past_k, k))  # (B, S, T, H), (B, S, S, H)
        scores = torch.cat([before, among], 2) * D**-0.5
        p = scores.masked_fill(~mask, -float("inf")).softmax(2)[..., None]  # (B, S, T + S, H, 1)
        y = (p[:, :, :T] * past_v[:, None]).sum(2) + (p[:, :, T:] * v[:, None]).sum(2)
        x = x + self.proj(y.reshape(B, S, C))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)))), k, v


class PagedGPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.wte, self.wpe = nn.Embedding(config.vocab, config.width), nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.ln_f = nn.LayerNorm(config.width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 if name.startswith("w") else p.shape[1] ** -0.5)

    def forward(self, tokens, positions, last, table, keys, values):
        """tokens, positions (B, S); last (B,): the position in S whose logits are wanted; table (B, P): pages; keys, values (L, N, K, H, D).

        Positions of one sequence follow each other.  Returns logits (B, V), and new keys and values (L, B, S, H, D).
        """
        B, S = tokens.shape
        T = self.config.context
        places = torch.arange(T)
        before = (places < positions[:, :1]).view(B, 1, T).expand(B, S, T)
        among = torch.tril(torch.ones(S, S, dtype=torch.bool)).expand(B, S, S)
        mask = torch.cat([before, among], 2)[..., None]
        x = self.wte(tokens) + self.wpe(positions)
        new_k, new_v = [], []
        for number, block in enumerate(self.blocks):
            past_k, past_v = (cache[number][table].flatten(1, 2) for cache in (keys, values))  # (B, T, H, D)
            x, k, v = block(x, past_k, past_v, mask)
            new_k.append(k)
            new_v.append(v)
        x = self.ln_f(x)[torch.arange(B), last]  # (B, C)
        return F.linear(x, self.wte.weight), torch.stack(new_k), torch.stack(new_v)


def example(config: Config, sequences: int, positions: int):
    """Arguments of a call."""
    cache = torch.zeros(
        config.layers, config.slots * config.pages + 1, config.page, config.heads, config.width // config.heads
    )
    places = torch.arange(positions).repeat(sequences, 1)
    table = torch.zeros(sequences, config.pages, dtype=torch.int64)
    return (
        torch.zeros_like(places),
        places,
        torch.zeros(sequences, dtype=torch.int64),
        table,
        cache,
        torch.zeros_like(cache),
    )


class Classifier(nn.Module):
    """A small network for images of 8 x 8, served with dynamic batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 10))

    def forward(self, images):
        return F.softmax(self.layers(images), 1)


def write(folder: str, model: PagedGPT, classifier: Classifier) -> None:
    """Write the packages of a model, and its configuration."""
    os.makedirs(folder, exist_ok=True)
    config, Dim = model.config, torch.export.Dim
    batch = {0: Dim("sequences", min=1, max=config.slots)}
    decode = torch.export.export(model, example(config, 2, 1), dynamic_shapes=(batch, batch, batch, batch, None, None))
    prefill = torch.export.export(model, example(config, 1, config.chunk))
    images = torch.export.export(
        classifier, (torch.zeros(2, 1, 8, 8),), dynamic_shapes=({0: Dim("images", min=1, max=8)},)
    )
    for name, program in (("decode", decode), ("prefill", prefill), ("classify", images)):
        torch._inductor.aoti_compile_and_package(program, package_path=os.path.join(folder, f"{name}.rlp"))
    with open(os.path.join(folder, "model.json"), "w") as file:
        json.dump(asdict(config), file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="served")
    parser.add_argument("--checkpoint", help="a state dict of PagedGPT")
    parser.add_argument("--layers", type=int, default=Config.layers)
    parser.add_argument("--width", type=int, default=Config.width)
    parser.add_argument("--slots", type=int, default=Config.slots)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = PagedGPT(Config(layers=options.layers, width=options.width, slots=options.slots)).eval()
    if options.checkpoint:
        model.load_state_dict(torch.load(options.checkpoint))
    write(options.out, model, Classifier().eval())
    print(f"{options.out}: {sorted(os.listdir(options.out))}")


if __name__ == "__main__":
    main()
