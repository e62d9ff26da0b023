"""Packages that train, on emulated GPUs: their losses there are those of the CPU, and they leave nothing on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.packages.environment import needs

LIGHTNING = """
import json, sys
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.losses, self.places = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)), [], set()
    def training_step(self, batch, number):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item()), self.places.add(str(batch[0].device))
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)

torch.manual_seed(0)
model, x = Classifier(), torch.randn(32, 8)
data = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), 8, pin_memory=sys.argv[1] == "cuda")
place = {"accelerator": "gpu", "devices": [1]} if sys.argv[1] == "cuda" else {"accelerator": "cpu"}
trainer = lightning.Trainer(max_epochs=2, logger=False, enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False, **place)
trainer.fit(model, data)
print(json.dumps([model.losses, sorted(model.places)]))
"""
TRAINER = """
import json, sys, tempfile
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

class Counts(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        x = torch.arange(i, i + 8) % 32
        return {"input_ids": x, "labels": x.clone()}

torch.manual_seed(0)
sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16)
model = LlamaForCausalLM(LlamaConfig(**sizes))
on_gpus = sys.argv[1] == "cuda"  # two, which the trainer gives to DataParallel
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder, per_device_train_batch_size=2 if on_gpus else 4, max_steps=3, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=1e-2,
        use_cpu=not on_gpus,
    )
    trainer = Trainer(model=model, args=args, train_dataset=Counts())
    trainer.train()
losses = [float(row["loss"]) for row in trainer.state.log_history if "loss" in row]
print(json.dumps([losses, [str(next(model.parameters()).device)]]))
"""


def _trained(program: str, where: str, folder: Path) -> tuple[list[float], list[str]]:
    file = folder / "program.py"
    file.write_text(program)
    environment = {
        **os.environ,
        "RUSHLIGHT_CUDA": "emulated" if where == "cuda" else "none",
        "RUSHLIGHT_EMULATED_CUDA_DEVICES": "2",
    }
    command = [sys.executable, "-m", "rushlight", str(file), where]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    losses, places = json.loads(done.stdout.splitlines()[-1])
    return losses, places


def _agree(program: str, place: str, folder: Path) -> None:
    wanted, _ = _trained(program, "cpu", folder)
    found, places = _trained(program, "cuda", folder)
    assert places == [place] and len(found) == len(wanted) > 2
    assert all(abs(a - b) < 2e-3 * max(1.0, abs(b)) for a, b in zip(found, wanted, strict=True)), (found, wanted)


@needs("lightning")
def test_lightning_on_a_gpu(tmp_path: Path) -> None:
    _agree(LIGHTNING, "cuda:1", tmp_path)


@needs("transformers", "accelerate")
def test_the_trainer_of_transformers_on_two_gpus(tmp_path: Path) -> None:
    _agree(TRAINER, "cuda:0", tmp_path)
