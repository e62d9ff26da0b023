"""The GPT of `gpt_chars.py` on several processes: DistributedDataParallel or fully_shard, with checkpoints.

    python -m rushlight examples/gpt_distributed.py --how one                                   one process
    torchrun --standalone --nproc-per-node 2 examples/gpt_distributed.py --how ddp              every rank has a copy
    torchrun --standalone --nproc-per-node 2 examples/gpt_distributed.py --how fsdp             every rank has a part
    torchrun ... --max-restarts 1 examples/gpt_distributed.py --how ddp --kill-at 6             rank 1 is killed on purpose

All three print the same losses: a batch is cut into `--parts` parts of which every rank takes its share, and one process
takes them one after the other.  A batch depends on the seed and the step alone, so a job that begins anew at the last
checkpoint goes on as if nothing had happened.  `make demo-distributed` runs them one after the other.
"""

import argparse
import json
import os
import shutil
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gpt_chars import GPT, Config, get_batch, read_text

SIZES = {
    "tiny": {"layers": 2, "heads": 2, "width": 64, "context": 32},
    "small": {"layers": 12, "heads": 12, "width": 768, "context": 64},  # the layers of GPT-2 small
}


class Journal:
    """What happens on this rank: a line of JSON each, written at once, since the process may not live long."""

    def __init__(self, folder, rank):
        self.path = folder / f"rank{rank}.jsonl"
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))

    def write(self, **what):
        with open(self.path, "a") as file:
            file.write(json.dumps({"attempt": self.attempt, "time": time.time(), **what}) + "\n")


# ***** checkpoints: every rank writes its parts, and another number of ranks can read them *****


def last(folder):
    """The step of the last whole checkpoint; 0 if there is none."""
    return max((int(path.parent.name[4:]) for path in folder.glob("step*/.metadata")), default=0)


def save(folder, model, optimizer, step, rank):
    before = last(folder)
    of_model, of_optimizer = get_state_dict(model, optimizer)
    dcp.save({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder / f"step{step}")
    if rank == 0 and before:  # whoever is killed before the new one is whole leaves the old one
        shutil.rmtree(folder / f"step{before}")


def load(folder, model, optimizer):
    """The first step that is to be done."""
    step = last(folder)
    if step:
        of_model, of_optimizer = get_state_dict(model, optimizer)
        state = {"model": of_model, "optimizer": of_optimizer}
        dcp.load(state, checkpoint_id=folder / f"step{step}")
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return step


# ***** training *****


def make(how, config):
    torch.manual_seed(0)  # the same weights on every rank
    model = GPT(config)
    if how == "ddp":
        model = DistributedDataParallel(model)
    elif how == "fsdp":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)


def train_step(model, optimizer, parts, size):
    """One step over this rank's parts of a batch, of `size` parts in all; the mean loss of the whole batch."""
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros(())
    for x, y in parts:
        _, loss = model(x, y)
        (loss / len(parts)).backward()  # ranks take the mean over themselves
        total += loss.detach()
    if size > len(parts):
        dist.all_reduce(total)
    optimizer.step()
    return (total / size).item()


def train(args, rank, world, journal):
    text = read_text(None)
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    data = torch.tensor([number[c] for c in text])  # (N,)
    config = Config(vocab=len(number), **SIZES[args.size])
    model, optimizer = make(args.how, config)
    first = load(args.out, model, optimizer)
    journal.write(begins=first, parameters=sum(p.numel() for p in model.parameters()))
    share = args.parts // world
    for step in range(first, args.steps):
        if step + 1 == args.kill_at and rank == world - 1 and journal.attempt == 0:
            kill_in_backward(model, journal)
        began = time.perf_counter()
        torch.manual_seed(1000 + step)
        x, y = get_batch(data, args.batch, config.context)  # (B, T) each
        parts = list(zip(x.chunk(args.parts), y.chunk(args.parts)))[rank * share : (rank + 1) * share]
        loss = train_step(model, optimizer, parts, args.parts)
        journal.write(step=step + 1, loss=loss, seconds=time.perf_counter() - began)
        if rank == 0:
            print(f"step {step + 1}: loss {loss:.6f}", flush=True)
        if (step + 1) % args.every == 0:
            save(args.out, model, optimizer, step + 1, rank)


def kill_in_backward(model, journal):
    def kill(grad):
        journal.write(killed=os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)

    model.register_forward_hook(lambda model, args, output: output[1].register_hook(kill) and None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--how", choices=("one", "ddp", "fsdp"), required=True)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4, help="sequences in a batch")
    parser.add_argument("--parts", type=int, default=2, help="parts of a batch: a multiple of the number of ranks")
    parser.add_argument("--every", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--kill-at", type=int, default=0, help="kill the last rank in the backward pass of this step")
    parser.add_argument(
        "--out", type=Path, default=Path("out/gpt_distributed"), help="where checkpoints and journals go"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.how != "one":
        dist.init_process_group("gloo")
    rank, world = (0, 1) if args.how == "one" else (dist.get_rank(), dist.get_world_size())
    if args.parts % world or args.batch % args.parts:
        parser.error(f"a batch of {args.batch} in {args.parts} parts cannot be divided among {world} ranks")
    journal = Journal(args.out, rank)
    try:
        train(args, rank, world, journal)
    except dist.DistBackendError as error:  # another rank has failed
        journal.write(heard=str(error))
        raise
    if args.how != "one":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
