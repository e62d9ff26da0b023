"""Libraries with compile switched on, beside the same without: `generate`, Lightning, Trainer, accelerate, higher, torchopt.

    python -m rushlight tools/compiled/compiled_libraries.py [name ...]

Each line says whether all results have the same bits, how many graphs were made, and where and why they end.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

CASES: dict[str, Callable[[bool], list[Any]]] = {}


def case(function: Callable[[bool], list[Any]]) -> Callable[[bool], list[Any]]:
    """Declare a case: what it gives must not depend on whether it compiles."""
    CASES[function.__name__] = function
    return function


# ***** generate *****


def written(compiles: bool, **options: Any) -> list[Any]:
    """Tokens of a tiny model whose forward is compiled."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64)  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    if compiles:
        model.forward = torch.compile(model.forward)
    torch.manual_seed(5)
    prompt = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 10]])
    return [model.generate(prompt, max_new_tokens=8, pad_token_id=0, **options)]


@case
def greedy(compiles: bool) -> list[Any]:
    return written(compiles, do_sample=False)


@case
def sampling(compiles: bool) -> list[Any]:
    return written(compiles, do_sample=True, top_k=20, temperature=0.8)


@case
def beams(compiles: bool) -> list[Any]:
    return written(compiles, do_sample=False, num_beams=3)


@case
def static_cache(compiles: bool) -> list[Any]:
    return written(compiles, do_sample=False, cache_implementation="static")


@case
def compiles_itself(compiles: bool) -> list[Any]:
    """`generate` compiles the decoding step by itself, as one graph, where the cache is static."""
    from transformers.generation.configuration_utils import CompileConfig

    asked = CompileConfig(fullgraph=True, mode="default")
    asked._compile_all_devices = True
    given = {"compile_config": asked} if compiles else {"disable_compile": True}
    return written(False, do_sample=False, cache_implementation="static", **given)


# ***** trainers *****


def small_data() -> Any:
    return torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,)))


@case
def lightning(compiles: bool) -> list[Any]:
    import pytorch_lightning

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Net(pytorch_lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))

        def forward(self, x: Any) -> Any:
            return self.net(x)

        def training_step(self, batch: Any, number: int) -> Any:
            x, y = batch
            return nn.functional.cross_entropy(self(x), y)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    torch.manual_seed(0)
    model, data = Net(), small_data()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pytorch_lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet)
    trainer.fit(torch.compile(model) if compiles else model, torch.utils.data.DataLoader(data, batch_size=8))
    return [p.detach() for p in model.parameters()]


@case
def trainer(compiles: bool) -> list[Any]:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    config = BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37)
    model = BertForSequenceClassification(config)
    data = [{"input_ids": torch.randint(3, 99, (12,)), "labels": torch.tensor(i % 2)} for i in range(16)]
    with tempfile.TemporaryDirectory() as folder:
        given = TrainingArguments(output_dir=folder, num_train_epochs=1, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                  disable_tqdm=True, save_strategy="no", logging_strategy="no", torch_compile=compiles, seed=3)  # fmt: skip
        Trainer(model=model, args=given, train_dataset=data).train()
    return [p.detach() for p in model.parameters()]


@case
def accelerate(compiles: bool) -> list[Any]:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import TorchDynamoPlugin

    AcceleratorState._reset_state(True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(small_data(), batch_size=8)
    plugin = TorchDynamoPlugin(backend="inductor") if compiles else None
    accelerator = Accelerator(cpu=True, dynamo_plugin=plugin)
    prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(prepared(x), y))
        accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@case
def second_order(compiles: bool) -> list[Any]:
    """An outer gradient through two inner steps, by `higher`."""
    import higher

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def outer(x: Any, y: Any) -> Any:
        with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False) as (inner, steps):
            for _ in range(2):
                steps.step(((inner(x) - y) ** 2).mean())
            return torch.autograd.grad(((inner(x) - y) ** 2).mean(), list(model.parameters()))

    return list((torch.compile(outer) if compiles else outer)(torch.randn(6, 4), torch.randn(6, 1)))


@case
def functional_optimizer(compiles: bool) -> list[Any]:
    """Two steps of `torchopt`'s Adam, whose trees are flattened by the native functions of `optree`."""
    import torchopt

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    names = [name for name, _ in model.named_parameters()]

    def trained(x: Any, y: Any) -> Any:
        params = tuple(p.detach().clone().requires_grad_() for p in model.parameters())
        optimizer = torchopt.adam(lr=0.1)
        state = optimizer.init(params)
        for _ in range(2):
            made = torch.func.functional_call(model, dict(zip(names, params, strict=True)), (x,))
            grads = torch.autograd.grad(((made - y) ** 2).mean(), params)
            updates, state = optimizer.update(grads, state, inplace=False)
            params = torchopt.apply_updates(params, updates, inplace=False)
        return params

    return list((torch.compile(trained) if compiles else trained)(torch.randn(6, 4), torch.randn(6, 1)))


def main() -> int:
    """Run the cases; 1 where results differ or a case fails."""
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    counters, wrong = torch._dynamo.utils.counters, 0
    for name, function in CASES.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        torch._dynamo.reset()
        counters.clear()
        try:
            expected, found = function(False), function(True)
            same = len(expected) == len(found) and all(map(torch.equal, expected, found))
        except Exception:
            traceback.print_exc()
            same = False
        wrong += not same
        told = [
            f"{kind}: {dict(counters[kind])}" for kind in ("graph_break", "recompiles", "failures") if counters[kind]
        ]
        print(
            f"{name:14} {'same bits' if same else 'DIFFERS'}, {counters['stats']['unique_graphs']} graphs; {'; '.join(told)}",
            flush=True,
        )
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
