"""Packages about tensors, modules and their description: einops, torchinfo, safetensors, ema-pytorch."""

from __future__ import annotations

from pathlib import Path

from tests.packages.environment import needs


@needs("einops")
def test_einops(same) -> None:
    import torch
    from einops import einsum, pack, rearrange, reduce, repeat, unpack
    from einops.layers.torch import EinMix, Rearrange, Reduce

    torch.manual_seed(0)
    x = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
    assert rearrange(x, "b (h w) c -> b c h w", h=1).shape == (2, 4, 1, 3)
    same("reduce", reduce(x, "b s c -> b c", "max"))
    same("einsum", einsum(x, x, "b i c, b j c -> b i j"))
    assert torch.equal(repeat(x, "b s c -> b (2 s) c"), torch.cat([x, x], 1))
    net = torch.nn.Sequential(Rearrange("b s c -> b (s c)"), torch.nn.Linear(12, 3), Reduce("b c -> b", "mean"))
    net(x).sum().backward()
    same("gradient", x.grad)
    same("EinMix", EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=4, d=2)(x))
    packed, shapes = pack([x, x[0]], "* c")
    assert [tuple(part.shape) for part in unpack(packed, shapes, "* c")] == [(2, 3, 4), (3, 4)]


@needs("torchinfo")
def test_torchinfo(same) -> None:
    import torch
    from torchinfo import summary

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)
    )
    told = summary(
        net,
        input_size=(2, 3, 8, 8),
        verbose=0,
        col_names=("input_size", "output_size", "num_params", "kernel_size", "mult_adds"),
    )
    same("text", str(told))
    assert told.total_params == sum(p.numel() for p in net.parameters())


@needs("safetensors")
def test_safetensors(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, load_model, safe_open, save_file, save_model

    kept = {
        "a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16), "c": torch.tensor([True, False]), "d": torch.arange(3),
        "e": torch.ones(2, dtype=torch.float8_e4m3fn),
    }  # fmt: skip
    save_file(kept, tmp_path / "x.safetensors", metadata={"made": "by a test"})
    loaded = load_file(tmp_path / "x.safetensors")
    assert all(
        loaded[name].dtype == t.dtype and torch.equal(loaded[name].float(), t.float()) for name, t in kept.items()
    )
    with safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert sorted(file.keys()) == sorted(kept) and file.metadata() == {"made": "by a test"}
        assert file.get_slice("a")[:1].tolist() == [[0.0, 1.0, 2.0]]
    one, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    save_model(one, tmp_path / "m.safetensors")
    assert load_model(other, tmp_path / "m.safetensors") == (set(), [])
    assert torch.equal(one.weight, other.weight)


@needs("ema_pytorch")
def test_ema_pytorch(same) -> None:
    import torch
    from ema_pytorch import EMA

    torch.manual_seed(0)
    net = torch.nn.Linear(4, 4)
    mean = EMA(net, beta=0.9, update_after_step=0, update_every=1)
    for _ in range(5):
        with torch.no_grad():
            net.weight.add_(0.1)
        mean.update()
    same("mean", mean(torch.ones(1, 4)))
    same("model", net(torch.ones(1, 4)))
