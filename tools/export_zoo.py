"""Export models of torchvision, timm and transformers, and compare with eager: `python tools/export_zoo.py [--onnx] [vision timm text]`.

Run it where these packages are installed.  A line for each model: equal bits, and how far the program over core aten
operators is off, relative to the largest value; with `--onnx` the same of its ONNX form in onnxruntime, and of that form
loaded again.  Totals by family come last.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VISION = (
    "resnet18 mobilenet_v2 mobilenet_v3_small efficientnet_b0 shufflenet_v2_x0_5 squeezenet1_1 densenet121 mnasnet0_5 regnet_y_400mf convnext_tiny"
    " swin_t alexnet vgg11_bn googlenet inception_v3 efficientnet_v2_s mobilenet_v3_large resnext50_32x4d wide_resnet50_2 vit_b_32 swin_v2_t"
    " maxvit_t segmentation.fcn_resnet50 segmentation.deeplabv3_mobilenet_v3_large segmentation.lraspp_mobilenet_v3_large video.r3d_18"
).split()
TIMM = (
    "resnet10t vit_tiny_patch16_224 efficientnet_lite0 mobilenetv3_small_050 convnext_atto mixer_s32_224 ghostnet_050 edgenext_xx_small tinynet_e"
    " regnetx_002 resmlp_12_224 poolformer_s12 deit_tiny_patch16_224 crossvit_tiny_240 pit_ti_224 xcit_nano_12_p16_224 levit_128s"
    " mobilevit_xxs repvgg_a0 res2net50_14w_8s visformer_tiny coat_lite_tiny gmlp_ti16_224 swin_s3_tiny_224 fastvit_t8 repghostnet_050 lcnet_035"
    " mobileone_s0 hardcorenas_a semnasnet_050"
).split()
TEXT = (
    "Bert Roberta GPT2 Llama Mistral Qwen2 Albert Electra Phi Gemma OPT GPTNeoX DistilBert XLMRoberta Camembert Ernie MPNet Qwen3 Falcon Bloom"
    " StableLm Olmo Granite Starcoder2"
).split()
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50, "max_position_embeddings": 32,
    "bos_token_id": 1, "eos_token_id": 1, "use_cache": False, "num_key_value_heads": 2,
}  # fmt: skip

# Derived from settings of other names
UNKNOWN = {"DistilBert": ("num_hidden_layers",), "Bloom": ("num_attention_heads",)}
SIZES = {"inception_v3": 96, "maxvit_t": 224, "vit_b_32": 224}


def models(torch: Any, which: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, module, arguments."""
    if which == "vision":
        page = importlib.import_module("torchvision.models")
        for name in VISION:
            group, _, short = name.rpartition(".")
            place = getattr(page, group) if group else page
            given = {"weights_backbone": None} if group == "segmentation" else {}
            shape = (1, 3, 4, 32, 32) if group == "video" else (1, 3, *[SIZES.get(name, 64)] * 2)
            yield name, getattr(place, short)(weights=None, **given), (torch.rand(shape),), {}
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
            small = {k: v for k, v in SMALL.items() if k not in UNKNOWN.get(name, ())}
            model = getattr(page, f"{name}Model")(getattr(page, f"{name}Config")(**small))
            yield name, model, (ids,), {"attention_mask": torch.ones_like(ids)}


def awaken(torch: Any, model: Any) -> None:
    """Give numbers to weights that begin as zeros: a last layer of zeros would compare zeros."""
    for weight in model.parameters():
        if weight.dim() > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.02)


def compared(torch: Any, model: Any, args: Any, kwargs: Any) -> str:
    """ "equal" or "other values", and the distance of the decomposed program."""
    leaves = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        # Eager first: some models keep what they computed once, which would be a value of the trace.
        wanted = [t for t in leaves(model(*args, **kwargs)) if isinstance(t, torch.Tensor)]
        program = torch.export.export(model.eval(), args, kwargs)
        found = [t for t in leaves(program.module()(*args, **kwargs)) if isinstance(t, torch.Tensor)]
        core = program.run_decompositions().module()
        others = [t for t in leaves(core(*args, **kwargs)) if isinstance(t, torch.Tensor)]
    equal = all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    off = max(
        ((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item() for a, b in zip(others, wanted, strict=True)
    )
    return f"{'equal' if equal else 'other values'}, core {off:.1e}"


def in_onnx(torch: Any, model: Any, args: Any, kwargs: Any) -> str:
    """How far the ONNX form is off in onnxruntime, and loaded again."""
    runtime = importlib.import_module("onnxruntime")
    leaves = torch.utils._pytree.tree_leaves
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = str(Path(folder) / "model.onnx")
        wanted = [t for t in leaves(model(*args, **kwargs)) if isinstance(t, torch.Tensor)]
        torch.onnx.export(model, args, path, kwargs=kwargs, dynamo=True, external_data=False)
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        values = [t.numpy() for t in leaves((args, kwargs))]
        given = dict(zip([i.name for i in session.get_inputs()], values, strict=True))
        theirs = [torch.from_numpy(a) for a in session.run(None, given)]
        back = torch.onnx.load(path)(*[torch.from_numpy(v) for v in given.values()])
        ours = [t for t in leaves(back) if isinstance(t, torch.Tensor)]
    off = [
        max(((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item() for a, b in zip(x, wanted, strict=True))
        for x in (theirs, ours)
    ]
    return f"{'close' if max(off) < 1e-5 else 'far'}, onnxruntime {off[0]:.1e}, loaded {off[1]:.1e}"


def said_of(torch: Any, asked: Any, model: Any, args: Any, kwargs: Any) -> str:
    """The words of a comparison, or of its error."""
    try:
        return str(asked(torch, model, args, kwargs))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:160]}".replace("\n", " ")


def main() -> int:
    """Print the lines; 1 where a model does not export, or computes something else."""
    warnings.simplefilter("ignore")
    from rushlight._base.alias import install_as_torch

    install_as_torch()
    import rushlight as torch

    families = [word for word in sys.argv[1:] if word != "--onnx"] or ["vision", "timm", "text"]
    totals = {which: Counter[str]() for which in families}
    for which in families:
        for name, model, args, kwargs in models(torch, which):
            torch.manual_seed(0)
            awaken(torch, model)
            said = [said_of(torch, compared, model.eval(), args, kwargs)]
            totals[which].update(models=1, exported=said[0].startswith("equal"))
            if "--onnx" in sys.argv:
                said.append(said_of(torch, in_onnx, model, args, kwargs))
                totals[which].update(onnx=said[1].startswith("close"))
            print(f"{which:8} {name:40} {'; '.join(said)}", flush=True)
    for which, counts in totals.items():
        print(which, dict(counts))
    return int(any(count < counts["models"] for counts in totals.values() for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
