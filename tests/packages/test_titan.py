"""torchtitan trains its smallest model on two ranks, divided in each way it has: the losses of one process."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.packages.environment import HERE, WRITING, needs

STEPS, LENGTH = 3, 64
WAYS = {
    "fsdp": ["--training.local-batch-size=2"],
    "fsdp compiled": ["--training.local-batch-size=2", "--compile.enable", "--activation-checkpoint.mode=none"],
    "ddp": ["--training.local-batch-size=2", "--parallelism.data-parallel-replicate-degree=2", "--parallelism.data-parallel-shard-degree=1"],
    "tensor": ["--parallelism.tensor-parallel-degree=2"],
    "context": ["--parallelism.context-parallel-degree=2"],
    "pipeline": ["--parallelism.pipeline-parallel-degree=2", "--parallelism.pipeline-parallel-schedule=Interleaved1F1B"],
}  # fmt: skip


def assets(folder: Path) -> None:
    """A tokenizer of words, and texts each of which fills a sequence; `shuffled` has the order in which two halves are
    read.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [f"w{k}" for k in range(200)]
    vocabulary = {word: k for k, word in enumerate(["<unk>", "<s>", "</s>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    (folder / "tokenizer").mkdir()
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    draw = random.Random(0)
    texts = [" ".join(draw.choice(words) for _ in range(LENGTH - 1)) for _ in range(64)]
    halves = [k for n in range(0, 32, 2) for k in (n, n + 1, 32 + n, 33 + n)]
    for name, order in (("plain", range(64)), ("shuffled", halves)):
        (folder / name).mkdir()
        lines = [json.dumps({"text": texts[k]}) for k in order]
        (folder / name / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")


def train(folder: Path, ranks: int, data: str, *options: str) -> list[tuple[float, float]]:
    """(loss, norm of the gradients) of each step; every run begins with the parameters of the seed checkpoint."""
    words = [
        sys.executable, "-m", "rushlight.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(HERE / "titan_on_cpus.py"),
        "--model.name=llama3", "--model.flavor=debugmodel", f"--model.hf-assets-path={folder / 'tokenizer'}", "--training.dataset=c4_test",
        f"--training.dataset-path={folder / data}", f"--training.seq-len={LENGTH}", f"--training.steps={STEPS}", "--training.dtype=float32",
        "--training.mixed-precision-param=float32", "--training.local-batch-size=4", "--metrics.log-freq=1", "--debug.seed=7",
        f"--job.dump-folder={folder / 'out'}", "--checkpoint.enable", "--checkpoint.load-only", *options,
    ]  # fmt: skip
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    text = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout + ran.stderr)
    found: dict[int, tuple[float, float]] = {}
    for step, loss, norm in re.findall(r"step:\s+(\d+)\s+loss:\s+(-?[\d.]+)\s+grad_norm:\s+([\d.]+)", text):
        if float(loss) > 0:  # ranks without the last stage of a pipeline know no loss
            found[int(step)] = float(loss), float(norm)
    return [found[step] for step in sorted(found)]


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("titan")
    assets(folder)
    train(folder, 1, "plain", "--checkpoint.create-seed-checkpoint", "--checkpoint.no-load-only")
    return folder


@needs("torchtitan", "torchdata", "datasets", "tokenizers", "tyro", "tensorboard", "mpi4py")
@pytest.mark.skipif(WRITING, reason="compares rushlight with itself")
def test_torchtitan_on_two_ranks(seeded: Path) -> None:
    one = {data: train(seeded, 1, data) for data in ("plain", "shuffled")}
    assert len(one["plain"]) == STEPS and one["plain"] != one["shuffled"]
    for way, options in WAYS.items():
        divided = train(seeded, 2, "plain", *options)
        expected = one["shuffled" if way in ("fsdp", "fsdp compiled", "ddp") else "plain"]
        losses = [loss for loss, _ in expected]
        # The program divides gradients of a pipeline and of replicas by other numbers; AdamW does not mind.
        assert [loss for loss, _ in divided] == pytest.approx(losses, rel=2e-5), way
        if way not in ("ddp", "pipeline"):
            assert [norm for _, norm in divided] == pytest.approx([norm for _, norm in expected], rel=2e-3), way
