"""Compile models of torchvision, timm, transformers and diffusers as they are, and compare them with eager.

    python -m rushlight tools/compiled/compiled_models.py torchvision [part of a name ...] [--json out.json] [--seconds 300]

Every model runs in a process of its own: evaluated, and trained for one step (forward and backward), eagerly and compiled, with the same seeds.
Results, gradients and buffers have to have the same bits.  The table says how many graphs a model became, why it was cut, and how long the first
compiled call took beyond what the second one took.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import signal
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]  # a model, what it is called with
Maker = Callable[[], Made]


# ***** families *****


def torchvision_models() -> Iterator[tuple[str, Maker]]:
    """Classifiers, segmentation, video, detection."""
    from torchvision import models

    def make(name: str, shape: tuple[int, ...], **options: Any) -> Maker:
        return lambda: (models.get_model(name, weights=None, **options), (torch.randn(shape),), {})

    # Smaller pictures and fewer channels would leave some of the nets without rows.
    side = {
        "inception_v3": 299,
        "vit_h_14": 28,
        "alexnet": 64,
        "googlenet": 64,
        "squeezenet1_0": 64,
        "squeezenet1_1": 64,
    }
    for name in models.list_models(module=models):
        large = "vit" in name or "swin" in name or "maxvit" in name
        size = side.get(name, 32)
        options: dict[str, Any] = {"num_classes": 7}
        if name.startswith("vit"):
            options["image_size"] = size
        if name.startswith("maxvit"):
            size = 224
        if name in ("inception_v3", "googlenet"):
            options |= {"init_weights": False}
        del large
        yield f"torchvision/{name}", make(name, (2, 3, size, size), **options)
    for name in models.list_models(module=models.segmentation):
        yield f"torchvision/segmentation/{name}", make(name, (2, 3, 33, 33), num_classes=5, weights_backbone=None)
    for name in models.list_models(module=models.video):
        shape = (1, 3, 16, 224, 224) if name.startswith("mvit") or name == "s3d" else (1, 3, 8, 32, 32)
        yield f"torchvision/video/{name}", make(name, shape, num_classes=5)
    for name in models.list_models(module=models.detection):
        yield f"torchvision/detection/{name}", _detector(models, name)


def _define_nms() -> None:
    """`torchvision::nms` in Python, in the place of the one in torchvision's library; it has `roi_align` in Python, too."""
    from torchvision.ops import boxes

    if boxes._assert_has_ops is not _define_nms:
        boxes._assert_has_ops = _define_nms
        torch.library.custom_op("torchvision::nms", _suppressed, mutates_args=())


def _suppressed(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    from torchvision.ops import box_iou

    left = torch.argsort(scores, descending=True, stable=True).tolist()
    overlaps, kept = (box_iou(dets, dets) > iou_threshold).tolist(), []
    while left:
        kept.append(left[0])
        left = [each for each in left[1:] if not overlaps[kept[-1]][each]]
    return torch.tensor(kept, dtype=torch.int64)


def _detector(models: Any, name: str) -> Maker:
    def made() -> Made:
        _define_nms()
        size = {"ssd300_vgg16": 300, "ssdlite320_mobilenet_v3_large": 320}.get(name, 64)
        sizes = {} if name.startswith("ssd") else {"min_size": size, "max_size": size}
        model = models.get_model(name, weights=None, weights_backbone=None, num_classes=3, **sizes)
        boxes = {"boxes": torch.tensor([[4.0, 4.0, 40.0, 40.0]]), "labels": torch.tensor([1])}
        if "mask" in name:
            boxes["masks"] = torch.ones(1, size, size, dtype=torch.uint8)
        if "keypoint" in name:
            boxes["keypoints"] = torch.ones(1, 17, 3) * 20
        return model, ([torch.rand(3, size, size)], [boxes]), {}

    return made


TIMM = """
    resnet18 resnetv2_50 resnext26ts seresnet18 skresnet18 ecaresnet26t resnest14d res2net50_14w_8s densenet121 dpn48b vgg11 efficientnet_b0
    mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small mnasnet_small ghostnet_050 hardcorenas_a regnetx_002 regnety_002 rexnetr_100 convnext_atto
    convnextv2_atto convmixer_768_32 cspresnet50 darknet17 dla34 hrnet_w18_small levit_128s vit_tiny_patch16_224 deit_tiny_patch16_224 beit_base_patch16_224
    swin_tiny_patch4_window7_224 mixer_s32_224 resmlp_12_224 gmlp_ti16_224 poolformer_s12 crossvit_tiny_240 cait_xxs24_224 coat_tiny convit_tiny
    edgenext_xx_small efficientformer_l1 eva02_tiny_patch14_224 fastvit_t8 fbnetc_100 focalnet_tiny_srf gcvit_xxtiny inception_v4 lcnet_050 maxvit_rmlp_nano_rw_256
    mobileone_s0 mobilevit_xxs mobilevitv2_050 mvitv2_tiny nest_tiny nf_resnet26 nfnet_l0 pit_ti_224 pvt_v2_b0 repvgg_a0 repvit_m0_9 sequencer2d_s selecsls42
    tinynet_e tiny_vit_5m_224 tnt_s_patch16_224 twins_svt_small visformer_tiny volo_d1_224 xcit_nano_12_p16_224 xception41 hgnet_tiny inception_next_tiny
    """.split()  # fmt: skip


def timm_models() -> Iterator[tuple[str, Maker]]:
    """Classifiers."""
    import timm

    def make(name: str) -> Maker:
        def made() -> Made:
            model = timm.create_model(name, pretrained=False, num_classes=7)
            size = model.default_cfg["input_size"][-1]
            if not model.default_cfg.get("fixed_input_size") and size > 64 and not any(map(name.startswith, _LARGE)):
                size = 64
            return model, (torch.randn(2, 3, size, size),), {}

        return made

    for name in TIMM:
        if timm.is_model(name):
            yield f"timm/{name}", make(name)


_LARGE = (
    "inception",
    "coat",
    "nest",
    "gcvit",
    "maxvit",
    "levit",
    "efficientformer",
    "xception",
    "volo",
    "tnt",
    "mvitv2",
    "edgenext",
)
_TINY: dict[str, Any] = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embedding_size": 32, "emb_dim": 32, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2,
    "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "intermediate_size": 37, "d_ff": 37,
    "ffn_dim": 37, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "hidden_dim": 37, "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64,
    "max_source_positions": 64, "max_target_positions": 64, "image_size": 32, "patch_size": 8, "num_decoder_layers": 2, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 0, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "state_size": 8, "n_inner": 37,
    "num_mel_bins": 16, "attention_types": None,
}  # fmt: skip
ENCODERS = """
    albert bert camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie esm flaubert fnet funnel ibert layoutlm longformer lxmert
    megatron-bert mobilebert modernbert mpnet mra nezha nystromformer rembert roberta roberta-prelayernorm roc_bert roformer splinter squeezebert xlm
    xlm-roberta xlm-roberta-xl xlnet xmod yoso big_bird canine eurobert
    """.split()  # fmt: skip
DECODERS = """
    gpt2 gpt_neo gpt_neox gpt_neox_japanese gptj gpt_bigcode opt bloom codegen ctrl falcon llama mistral mixtral gemma gemma2 gemma3_text phi phi3 qwen2 qwen2_moe
    qwen3 qwen3_moe stablelm starcoder2 olmo olmo2 olmoe cohere cohere2 persimmon mpt xglm biogpt granite granitemoe nemotron helium glm glm4 openai-gpt smollm3 ernie4_5
    exaone4 dbrx jetmoe deepseek_v2 deepseek_v3 arcee apertus hunyuan_v1_dense
    """.split()  # fmt: skip
BOTH = "t5 mt5 umt5 bart mbart blenderbot blenderbot-small marian m2m_100 pegasus pegasus_x led longt5 switch_transformers prophetnet plbart nllb-moe bigbird_pegasus".split()
STATE_SPACE = "mamba mamba2 falcon_mamba rwkv jamba bamba zamba recurrent_gemma".split()
VISION = """
    vit deit beit swin swinv2 convnext convnextv2 resnet dinov2 dinov2_with_registers segformer vit_mae vit_msn poolformer pvt pvt_v2 levit mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2
    regnet cvt bit efficientnet focalnet donut-swin hiera ijepa swiftformer yolos vitdet dinov3_vit dinov3_convnext data2vec-vision van efficientformer
    textnet timesformer videomae vivit glpn dpt
    """.split()  # fmt: skip
AUDIO = "wav2vec2 hubert unispeech unispeech-sat wavlm sew sew-d data2vec-audio wav2vec2-conformer wav2vec2-bert whisper audio-spectrogram-transformer speech_to_text".split()


def transformers_models() -> Iterator[tuple[str, Maker]]:
    """Tiny configurations of every kind."""
    from transformers import CONFIG_MAPPING

    kinds = [
        ("encoder", ENCODERS),
        ("decoder", DECODERS),
        ("both", BOTH),
        ("state", STATE_SPACE),
        ("vision", VISION),
        ("audio", AUDIO),
    ]
    for kind, names in kinds:
        for name in names:
            if name in CONFIG_MAPPING:
                yield f"transformers/{kind}/{name}", _transformer(kind, name)


def _tiny(name: str) -> Any:
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    default = kind()
    given = {
        key: value
        for key, value in _TINY.items()
        if isinstance(getattr(default, key, None), (int, float))
        and not isinstance(getattr(default, key), bool)
        and not isinstance(getattr(kind, key, None), property)
    }
    given |= SPECIAL.get(name, {})
    for key in ("layer_types", "mlp_layer_types", "layers_block_type"):
        if (
            isinstance(getattr(default, key, None), list)
            and key not in given
            and not isinstance(getattr(kind, kind.attribute_map.get(key, key), None), property)
        ):
            held = getattr(default, key)
            given[key] = [held[0], held[-1]]
    config = kind(**given)
    return config


_WAVES = {"conv_dim": (16, 16), "conv_stride": (4, 4), "conv_kernel": (8, 8), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
          "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "hidden_size": 32}  # fmt: skip
_WINDOWS = {
    "embed_dim": 16,
    "depths": [1, 1],
    "num_heads": [2, 2],
    "window_size": 2,
    "patch_size": 4,
    "hidden_size": 32,
}
_STAGES = {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}
_FOUR = {"hidden_sizes": [16, 32, 32, 48], "depths": [1, 1, 1, 1]}
SPECIAL: dict[str, dict[str, Any]] = {
    "wav2vec2": _WAVES, "hubert": _WAVES, "unispeech": _WAVES, "unispeech-sat": _WAVES, "wavlm": _WAVES, "data2vec-audio": _WAVES | {"conv_pos_kernel_size": 3},
    "wav2vec2-conformer": _WAVES, "sew": _WAVES | {"squeeze_factor": 1}, "sew-d": _WAVES | {"squeeze_factor": 1},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 4, "hidden_size": 32, "window_size": 4},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8},
             "ffn_config": {"ffn_hidden_size": 37, "hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2}},
    "longformer": {"attention_window": 4}, "big_bird": {"block_size": 4}, "funnel": {"architectures": ["FunnelModel"], "block_sizes": [1, 1], "block_repeats": [1, 1], "d_head": 8, "d_inner": 37},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32}, "albert": {"embedding_size": 32},
    "swin": _WINDOWS,
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "time_step_rank": 2, "use_associative_scan": False},
    "falcon_mamba": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "time_step_rank": 2, "use_associative_scan": False},
    "mamba2": {"hidden_size": 32, "num_heads": 8, "head_dim": 8, "n_groups": 2, "num_hidden_layers": 2, "chunk_size": 4, "expand": 2},
    "gptj": {"rotary_dim": 4}, "codegen": {"rotary_dim": 4}, "led": {"attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
    "mixtral": {"intermediate_size": 40}, "olmoe": {"intermediate_size": 40}, "granitemoe": {"intermediate_size": 40},
    "esm": {"vocab_size": 99, "mask_token_id": 5, "pad_token_id": 1, "position_embedding_type": "rotary"}, "squeezebert": {"intermediate_size": 64, "embedding_size": 32},
    "lxmert": {"l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 16}, "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8}, "hunyuan_v1_dense": {"num_key_value_heads": 2, "head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 2,
              "intermediate_size": 40, "use_mamba_kernels": False, "use_associative_scan": False},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4},
    "zamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 2, "n_mamba_heads": 2, "use_mamba_kernels": False,
              "num_hidden_layers": 4, "use_associative_scan": False, **dict.fromkeys(("layers_block_type", "layer_types"), ["linear_attention", "hybrid"] * 2)},
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 4},
    "swinv2": _WINDOWS, "donut-swin": _WINDOWS, "focalnet": {"embed_dim": 16, "depths": [1, 1], "hidden_sizes": [16, 32], "focal_levels": [2, 2], "focal_windows": [3, 3]},
    "convnext": _STAGES, "convnextv2": _STAGES, "dinov3_convnext": {"hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1]},
    "resnet": _STAGES | {"embedding_size": 16}, "regnet": _STAGES | {"embedding_size": 16, "groups_width": 8}, "bit": _STAGES | {"embedding_size": 32, "num_groups": 8},
    "segformer": _FOUR | {"num_attention_heads": [1, 2, 2, 4]}, "glpn": _FOUR | {"num_attention_heads": [1, 2, 2, 4]},
    "pvt": _FOUR | {"num_attention_heads": [1, 2, 2, 4]}, "pvt_v2": _FOUR | {"num_attention_heads": [1, 2, 2, 4]}, "poolformer": _FOUR, "van": _FOUR,
    "hiera": {"embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 2, 4], "image_size": [64, 64]},
    "levit": {"image_size": 64, "patch_size": 16, "hidden_sizes": [16, 32, 48], "num_attention_heads": [1, 2, 2], "depths": [1, 1, 1], "key_dim": [8, 8, 8]},
    "mobilevitv2": {"image_size": 64, "patch_size": 2}, "mobilenet_v1": {"depth_multiplier": 0.25}, "mobilenet_v2": {"depth_multiplier": 0.25},
    "efficientnet": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640, "image_size": 32},
    "textnet": {"stem_out_channels": 16, "hidden_sizes": [16, 16, 32, 32, 32], "image_size": [64, 64]}, "swiftformer": {"embed_dims": [16, 32, 32, 48], "depths": [1, 1, 1, 1]},
    "deepseek_v2": {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1,
                    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "num_key_value_heads": 4},
    "deepseek_v3": {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1,
                    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "num_key_value_heads": 4},
}  # fmt: skip


_MASKED = ("longt5", "switch_transformers")  # where a compiler is at work they make no masks, and want them


def _transformer(kind: str, name: str) -> Maker:
    def made() -> Made:
        from transformers import AutoModel, AutoModelForCausalLM

        config = _tiny(name)
        model = (AutoModelForCausalLM if kind in ("decoder", "state") else AutoModel).from_config(config)
        ids = torch.randint(3, 90, (2, 8))
        if kind in ("encoder", "decoder", "state"):
            given = {"input_ids": ids} | ({"labels": ids} if kind != "encoder" else {})
            if name == "lxmert":
                given |= {"visual_feats": torch.randn(2, 5, 16), "visual_pos": torch.rand(2, 5, 4)}
            return model, (), given
        if kind == "both":
            given = {"input_ids": ids, "decoder_input_ids": ids[:, :5].clone()}
            if name in _MASKED:
                given |= {"attention_mask": torch.ones(2, 8), "decoder_attention_mask": torch.ones(2, 5)}
            return model, (), given
        if kind == "vision":
            side = getattr(config, "image_size", 32)
            side = side if isinstance(side, int) else side[0]
            shape = (2, 3, side, side)
            if name in ("timesformer", "videomae", "vivit"):
                shape = (2, config.num_frames, 3, side, side)
            return model, (torch.randn(shape),), {}
        if name == "whisper":
            return model, (), {"input_features": torch.randn(2, 16, 128), "decoder_input_ids": ids}
        if name == "speech_to_text":
            return (
                model,
                (),
                {"input_features": torch.randn(2, 40, config.input_feat_per_channel), "decoder_input_ids": ids},
            )
        if name == "wav2vec2-bert":
            return model, (torch.randn(2, 20, config.feature_projection_input_dim),), {}
        if name == "audio-spectrogram-transformer":
            return model, (torch.randn(2, config.max_length, config.num_mel_bins),), {}
        return model, (torch.randn(2, 400),), {}

    return made


def diffusers_models() -> Iterator[tuple[str, Maker]]:
    """UNets, an autoencoder, a transformer."""
    import diffusers

    def unet() -> Made:
        model = diffusers.UNet2DModel(sample_size=16, block_out_channels=(32, 64), norm_num_groups=8, layers_per_block=1, attention_head_dim=8,
                                      down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))  # fmt: skip
        return model, (torch.randn(2, 3, 16, 16), 10), {}

    def conditional() -> Made:
        model = diffusers.UNet2DConditionModel(sample_size=16, block_out_channels=(32, 64), norm_num_groups=8, layers_per_block=1, attention_head_dim=8,
                                               down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=32,
                                               up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))  # fmt: skip
        return model, (torch.randn(2, 4, 16, 16), torch.tensor([10, 20]), torch.randn(2, 7, 32)), {}

    def autoencoder() -> Made:
        model = diffusers.AutoencoderKL(block_out_channels=(32,), norm_num_groups=8, latent_channels=2, sample_size=16)
        return model, (torch.randn(2, 3, 16, 16),), {}

    def dit() -> Made:
        model = diffusers.DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, norm_num_groups=4
        )
        return model, (torch.randn(2, 4, 8, 8), torch.tensor([1, 2]), torch.tensor([3, 4])), {}

    for name, maker in (("unet", unet), ("unet-conditional", conditional), ("autoencoder", autoencoder), ("dit", dit)):
        yield f"diffusers/{name}", maker


FAMILIES = {
    "torchvision": torchvision_models,
    "timm": timm_models,
    "transformers": transformers_models,
    "diffusers": diffusers_models,
}


# ***** one model *****


def tensors_of(value: Any) -> list[Any]:
    """All tensors in a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for x in value.values() for t in tensors_of(x)]
    if isinstance(value, (list, tuple)):
        return [t for x in value for t in tensors_of(x)]
    if hasattr(value, "to_tuple"):
        return tensors_of(value.to_tuple())
    if hasattr(value, "layers") and hasattr(value, "get_seq_length"):  # a cache of keys and values
        return [t for layer in value.layers for x in vars(layer).values() for t in tensors_of(x)]
    if hasattr(value, "__dict__"):
        return [t for x in vars(value).values() for t in tensors_of(x)]
    return []


def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any, train: bool) -> tuple[list[Any], float]:
    """Results, gradients and buffers after one call; and its seconds."""
    model.train(train)
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    args, kwargs = copy.deepcopy((args, kwargs))
    begin = time.perf_counter()
    if train:
        out = call(*args, **kwargs)
        found = tensors_of(out)
        loss = sum(
            t.float().mean() * (i + 1)
            for i, t in enumerate(t for t in found if t.is_floating_point() and t.requires_grad)
        )
        loss.backward()
    else:
        with torch.no_grad():
            found = tensors_of(call(*args, **kwargs))
    seconds = time.perf_counter() - begin
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    return [*[t.detach() for t in found], *grads, *[b.clone() for b in model.buffers()]], seconds


def same(a: list[Any], b: list[Any]) -> str:
    """Where two lists of tensors differ; empty where they do not."""
    if len(a) != len(b):
        return f"{len(a)} and {len(b)} tensors"
    for number, (x, y) in enumerate(zip(a, b, strict=True)):
        if (x is None) != (y is None):
            return f"tensor {number} of {len(a)}: one is None"
        if x is None:
            continue
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"tensor {number} of {len(a)}: {list(x.shape)} {x.dtype}, {list(y.shape)} {y.dtype}"
        if not torch.equal(torch.nan_to_num(x), torch.nan_to_num(y)):
            return f"tensor {number} of {len(a)} differs by up to {(x.double() - y.double()).abs().max().item():.1e}"
    return ""


def measure(maker: Maker, stage: Callable[[str], None]) -> dict[str, Any]:
    """What became of one model."""
    from rushlight._capture.trace import COUNTERS, reset

    found: dict[str, Any] = {}
    stage("make")
    torch.manual_seed(0)
    model, args, kwargs = maker()
    other = copy.deepcopy(model)
    for mode in ("eval", "train"):
        for counter in COUNTERS.values():
            counter.clear()
        reset()
        train = mode == "train"
        stage(f"{mode} eager")
        try:
            expected, _ = run(model, model, args, kwargs, train)
        except Exception as error:
            found[mode] = {"eager": f"{type(error).__name__}: {error}"[:200]}
            continue
        spare = copy.deepcopy(other, {id(p): p for p in other.parameters()})
        row = compared((model, other), args, kwargs, train, expected, stage, True)
        if row.get("error", "").startswith(("Unsupported", "UserError")):  # no one program: then in parts
            other, whole = spare, row["error"]
            for counter in COUNTERS.values():
                counter.clear()
            reset()
            row = compared((model, other), args, kwargs, train, expected, stage, False)
            row["fullgraph"] = whole
        row["graphs"] = COUNTERS["stats"]["unique_graphs"]
        row["breaks"] = dict(COUNTERS["graph_break"])
        row["failures"] = dict(COUNTERS["failures"])
        row["recompiles"] = dict(COUNTERS["recompiles"])
        row["whole"] = "fullgraph" not in row and not row["breaks"] and not row["failures"]
        found[mode] = row
    return found


def compared(
    models: tuple[Any, Any],
    args: Any,
    kwargs: Any,
    train: bool,
    expected: list[Any],
    stage: Callable[[str], None],
    fullgraph: bool,
) -> dict[str, Any]:
    """Two compiled calls of the second model beside the first one, whose first results are `expected`."""
    from rushlight._capture.trace import CompileSettings, compile_function

    model, other = models
    mode = f"{'train' if train else 'eval'}{'' if fullgraph else ' in parts'}"
    compiled = compile_function(other, CompileSettings(fullgraph=fullgraph))
    row: dict[str, Any] = {}
    try:
        stage(f"{mode} compiled")
        got, first = run(compiled, other, args, kwargs, train)
        row["differs"] = same(expected, got)
        stage(f"{mode} again")
        expected, _ = run(model, model, args, kwargs, train)
        got, second = run(compiled, other, args, kwargs, train)
        row["differs"] = row["differs"] or same(expected, got)
        row["seconds"] = round(first - second, 2)
        row["warm"] = round(second, 4)
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:300]
        row["trace"] = traceback.format_exc()[-1500:]
    return row


class _Traced(Exception):
    """A model was traced whole."""


def trace_only(maker: Maker, stage: Callable[[str], None]) -> dict[str, Any]:
    """Whether a model can be traced whole, evaluated and trained, and why not; nothing is compiled or compared."""
    from rushlight._capture.trace import CompileSettings, compile_function
    from rushlight._capture.trace.segments import segment

    def stop(*_: Any) -> Any:
        raise _Traced

    segment._program = stop  # this process ends after the model
    found: dict[str, Any] = {}
    stage("make")
    torch.manual_seed(0)
    model, args, kwargs = maker()
    for mode in ("eval", "train"):
        stage(mode)
        model.train(mode == "train")
        begin = time.perf_counter()
        try:
            with torch.set_grad_enabled(mode == "train"):
                compile_function(model, CompileSettings(fullgraph=True))(*args, **kwargs)
            reason = "not traced"
        except _Traced:
            reason = ""
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:300]
        found[mode] = {"whole": not reason, "reason": reason, "seconds": round(time.perf_counter() - begin, 2)}
    return found


def in_process(maker: Maker, seconds: int, look: Callable[..., Any]) -> dict[str, Any]:
    """`measure` in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        signal.alarm(seconds)
        with os.fdopen(writing, "w") as out:

            def stage(text: str) -> None:
                out.write(json.dumps({"stage": text}) + "\n")
                out.flush()

            try:
                found = look(maker, stage)
            except BaseException as error:
                found = {"failed": f"{type(error).__name__}: {error}"[:300], "trace": traceback.format_exc()[-1500:]}
            out.write(json.dumps(found) + "\n")
            out.flush()
        os._exit(0)
    os.close(writing)
    lines = []
    with os.fdopen(reading) as into:
        lines = [json.loads(line) for line in into]
    _, status = os.waitpid(child, 0)
    if not lines or "stage" in lines[-1]:
        at = lines[-1]["stage"] if lines else "start"
        return {"failed": f"ended in '{at}' by signal {status & 127}" if status & 127 else f"ended in '{at}'"}
    return lines[-1]


def line(name: str, found: dict[str, Any]) -> str:
    """The row of the table."""
    if "failed" in found:
        return f"{name:50} FAILED {found['failed'][:150]}"
    parts = []
    for mode in ("eval", "train"):
        row = found.get(mode, {})
        if "reason" in row:
            parts.append(f"{mode}: {row['reason'] or 'whole'} {row['seconds']} s")
        elif "eager" in row:
            parts.append(f"{mode}: eager fails: {row['eager'][:80]}")
        elif "error" in row:
            parts.append(f"{mode}: ERROR {row['error'][:120]}")
        else:
            state = (
                ("whole" if row["graphs"] == 1 else f"whole in {row['graphs']} programs")
                + (f", compiled again {row['recompiles']}" if row["recompiles"] else "")
                if row["whole"]
                else f"{row['graphs']} graphs {row['breaks'] or ''} {row['failures'] or ''} {row['recompiles'] or ''}"
            )
            parts.append(
                f"{mode}: {state} {row['seconds']} s" + (f" DIFFERS {row['differs']}" if row["differs"] else "")
            )
    return f"{name:50} " + " | ".join(parts)


def page_of(results: dict[str, Any]) -> str:
    """The results as a page: names of models that are one graph with eager's bits, and a table of the others."""
    lines = [
        "# Models",
        "",
        "Unmodified models of four libraries, evaluated and trained for one step (forward and backward) eagerly and compiled: results, gradients and",
        "buffers have to have the same bits. `tools/compiled/compiled_models.py` runs them and writes this page (`--page`). Sizes are tiny: it is graphs and bits that",
        "are looked at here. [Breaks](breaks.md) tells what the reasons mean, and what to do about them.",
        "",
        "`fullgraph=True` is what is asked for first. *Compiled again* are models that the second call finds changed, as by their first, or whose sizes elements tell:",
        "each call is one graph.",
        "",
        "| | models | one graph | compiled again | several graphs | other bits | eager fails |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    groups: dict[str, dict[str, list[str]]] = {}
    told: dict[str, list[str]] = {}
    for name, found in sorted(results.items()):
        group, _, model = name.rpartition("/")
        state, words = _state_of(found)
        groups.setdefault(group, {}).setdefault(state, []).append(model)
        told.setdefault(state, []).append(f"| {group}/{model} | {words} |")
    for group, states in groups.items():
        counts = [len(states.get(state, [])) for state in ("one", "again", "several", "differs", "eager")]
        lines.append(f"| {group} | {sum(counts)} | {' | '.join(str(n) for n in counts)} |")
    lines += [
        "", "`tools/compiled/compiled_libraries.py` switches compile on in libraries: `generate` of transformers (greedy, sampling, beams, static cache), Lightning,",
        "Trainer, accelerate, second-order code with `higher`, optimizers of `torchopt`. All give the bits that they give without it; breaks are left in `torchopt`,",
        "at a lock, as in PyTorch. nanoGPT and minGPT are one graph, with dropout, too.",
    ]  # fmt: skip
    lines += ["", "## One graph, eager's bits", ""]
    for group, states in groups.items():
        names = ", ".join(states.get("one", [])) or "none"
        lines += [*textwrap.wrap(f"**{group}**: {names}.", 158, break_long_words=False, break_on_hyphens=False), ""]
    titles = {"again": "Compiled again", "several": "Several graphs", "differs": "Other bits", "eager": "Not run"}
    for state, title in titles.items():
        if state in told:
            head = "graphs when evaluated, when trained; reasons" if state in ("again", "several") else "why"
            lines += [
                f"## {title}",
                "",
                *_WORDS.get(state, ()),
                f"| model | {head} |",
                "| --- | --- |",
                *told[state],
                "",
            ]
    return "\n".join(lines)


_WORDS = {
    "several": (
        "They decide by elements: whether a layer is dropped, which boxes are left, which range was met. PyTorch 2.13 refuses `fullgraph=True` for those of",
        "transformers, too.",
        "",
    )
}


def _state_of(found: dict[str, Any]) -> tuple[str, str]:
    """What became of a model ("one" graph, compiled "again", "several", it "differs", "eager" fails), and the words."""
    rows = [found.get(mode, {}) for mode in ("eval", "train")]
    rows = [row for row in rows if "eager" not in row]
    if "failed" in found or not rows:
        return "eager", _in_cell(found.get("failed") or found.get("eval", found.get("train", {})).get("eager", ""))
    if any(row.get("differs") or row.get("error") for row in rows):
        return "differs", "; ".join(_in_cell(row.get("differs") or row.get("error") or "") for row in rows)
    whole = all(row["whole"] for row in rows)
    if whole and not any(row["recompiles"] for row in rows):
        return "one", ""
    reasons = {reason: count for row in rows for reason, count in {**row["breaks"], **row["failures"]}.items()}
    reasons |= {f"compiled again: {reason}": count for row in rows for reason, count in row["recompiles"].items()}
    words = "; ".join(f"{_in_cell(reason)} ({count})" for reason, count in reasons.items())
    return "again" if whole else "several", f"{', '.join(str(row['graphs']) for row in rows)}; {words}"


def _in_cell(text: str) -> str:
    """A reason as it may stand in a table."""
    return text.split("\n")[0].replace("|", "/").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")[:120]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("family", choices=[*FAMILIES, "all"])
    parser.add_argument("names", nargs="*", help="parts of names; without any all models")
    parser.add_argument("--json", default="", help="a file for the results, which are added to")
    parser.add_argument("--missing", action="store_true", help="only models that the file of results does not have")
    parser.add_argument("--seconds", type=int, default=300, help="limit for each model")
    parser.add_argument(
        "--page", default="", help="write the page of all results in the file to this path, and run nothing"
    )
    parser.add_argument("--traced", action="store_true", help="only say whether models can be traced whole")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = json.load(open(options.json)) if options.json and os.path.exists(options.json) else {}
    if options.page:
        with open(options.page, "w") as page:
            page.write(page_of(results))
        return
    for family in FAMILIES if options.family == "all" else [options.family]:
        for name, maker in FAMILIES[family]():
            if options.names and not any(part in name for part in options.names):
                continue
            if options.missing and name in results:
                continue
            results[name] = in_process(maker, options.seconds, trace_only if options.traced else measure)
            print(line(name, results[name]), flush=True)
            if options.json:
                json.dump(results, open(options.json, "w"), indent=1)


if __name__ == "__main__":
    sys.exit(main())
