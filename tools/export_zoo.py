"""Export models of torchvision, timm and transformers, and compare with eager: `python tools/export_zoo.py [vision timm text]`.

Run it where these packages are installed, without PyTorch.  A line for each model: equal bits, and how far the program over
core aten operators is off, relative to the largest value.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

VISION = (
    "resnet18 mobilenet_v2 mobilenet_v3_small efficientnet_b0 shufflenet_v2_x0_5 squeezenet1_1 densenet121 mnasnet0_5 regnet_y_400mf convnext_tiny"
    " swin_t"
).split()
TIMM = (
    "resnet10t vit_tiny_patch16_224 efficientnet_lite0 mobilenetv3_small_050 convnext_atto mixer_s32_224 ghostnet_050 edgenext_xx_small tinynet_e"
    " regnetx_002 resmlp_12_224 poolformer_s12"
).split()
TEXT = "Bert Roberta GPT2 Llama Mistral Qwen2 Albert Electra Phi".split()
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50, "max_position_embeddings": 32,
    "bos_token_id": 1, "eos_token_id": 1, "use_cache": False, "num_key_value_heads": 2,
}  # fmt: skip


def models(torch: Any, which: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, module, arguments."""
    if which == "vision":
        page = importlib.import_module("torchvision.models")
        for name in VISION:
            yield name, getattr(page, name)(weights=None), (torch.rand(1, 3, 64, 64),), {}
    elif which == "timm":
        page = importlib.import_module("timm")
        for name in TIMM:
            model = page.create_model(name, pretrained=False)
            size = model.default_cfg["input_size"][-1]
            yield name, model, (torch.rand(1, 3, size, size),), {}
    else:
        page = importlib.import_module("transformers")
        ids = torch.tensor([[1, 2, 3, 4, 5]])
        for name in TEXT:
            model = getattr(page, f"{name}Model")(getattr(page, f"{name}Config")(**SMALL))
            yield name, model, (ids,), {"attention_mask": torch.ones_like(ids)}


def compared(torch: Any, model: Any, args: Any, kwargs: Any) -> str:
    """ "equal" or "other values", and the distance of the decomposed program."""
    leaves = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        program = torch.export.export(model.eval(), args, kwargs)
        wanted = [t for t in leaves(model(*args, **kwargs)) if isinstance(t, torch.Tensor)]
        found = [t for t in leaves(program.module()(*args, **kwargs)) if isinstance(t, torch.Tensor)]
        core = program.run_decompositions().module()
        others = [t for t in leaves(core(*args, **kwargs)) if isinstance(t, torch.Tensor)]
    equal = all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    off = max(((a - b).abs().max() / b.abs().max().clamp(min=1e-9)).item() for a, b in zip(others, wanted, strict=True))
    return f"{'equal' if equal else 'other values'}, core {off:.1e}"


def main() -> int:
    """Print the lines; 1 where a model does not export, or computes something else."""
    warnings.simplefilter("ignore")
    from rushlight._base.alias import install_as_torch

    install_as_torch()
    import rushlight as torch

    failed = 0
    for which in sys.argv[1:] or ("vision", "timm", "text"):
        for name, model, args, kwargs in models(torch, which):
            try:
                said = compared(torch, model, args, kwargs)
            except Exception as error:
                said = f"{type(error).__name__}: {str(error)[:120]}"
            failed += not said.startswith("equal")
            print(f"{which:8} {name:24} {said}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
