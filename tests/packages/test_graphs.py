"""Packages that write and change programs by torch.fx, and containers of tensors: e3nn, opt-einsum-fx, torchvision's and timm's extractors, tensordict."""

from __future__ import annotations

from pathlib import Path

from tests.packages.environment import needs


@needs("e3nn", "opt_einsum_fx", "sympy", "scipy", "opt_einsum")
def test_e3nn(same) -> None:
    import torch
    from e3nn import nn, o3

    torch.manual_seed(0)
    product = o3.FullyConnectedTensorProduct("2x0e+1x1o", "1x0e+1x1o", "2x0e+2x1o")
    made = product(torch.randn(3, 5), torch.randn(3, 4))
    made.pow(2).sum().backward()
    same("tensor product", [made, product.weight.grad])
    linear = o3.Linear("2x0e+1x1o", "3x0e+2x1o")
    same("linear", linear(torch.randn(3, 5)))
    same("gate", nn.Gate("2x0e", [torch.relu], "1x0e", [torch.sigmoid], "1x1o")(torch.randn(3, 6)))
    same("harmonics", o3.spherical_harmonics([0, 1, 2, 3], torch.randn(3, 3), True))
    rotation = o3.rand_matrix()
    x = torch.randn(4, 5)
    turned = linear(x @ o3.Irreps("2x0e+1x1o").D_from_matrix(rotation).T)
    torch.testing.assert_close(
        turned, linear(x) @ o3.Irreps("3x0e+2x1o").D_from_matrix(rotation).T, rtol=1e-4, atol=1e-4
    )


@needs("opt_einsum_fx", "opt_einsum")
def test_einsums_of_a_graph(same) -> None:
    import opt_einsum_fx
    import torch
    from torch import fx

    def program(x, y, z):
        return torch.einsum("ij,jk->ik", x, y) @ z + torch.einsum("ij,jk,kl->il", x, y, z)

    torch.manual_seed(0)
    inputs = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5, 5)
    made = opt_einsum_fx.optimize_einsums_full(fx.symbolic_trace(program), inputs)
    torch.testing.assert_close(made(*inputs), program(*inputs))
    same("nodes", [node.name for node in made.graph.nodes])


@needs("torchvision")
def test_features_of_torchvision(same) -> None:
    import torch
    from torchvision.models import mobilenet_v3_small, resnet18
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    torch.manual_seed(0)
    model = resnet18(num_classes=5).eval()
    extract = create_feature_extractor(model, {"layer1": "early", "layer3.1.relu": "late", "flatten": "last"})
    found = extract(torch.randn(1, 3, 32, 32))
    same("resnet18", {name: [list(value.shape), value.double().sum()] for name, value in found.items()})
    same("names", get_graph_node_names(model)[0])
    same("names of mobilenet", get_graph_node_names(mobilenet_v3_small(num_classes=3))[1])


@needs("tensordict", "cloudpickle", "orjson", "pyvers", "importlib_metadata")
def test_tensordict(same, tmp_path: Path) -> None:
    import torch
    from tensordict import TensorDict, tensorclass
    from tensordict.nn import TensorDictModule, TensorDictSequential

    torch.manual_seed(0)
    data = TensorDict({"a": torch.arange(6.0).view(3, 2), "b": {"c": torch.ones(3, 1)}}, batch_size=[3])
    both = torch.stack([data, data * 2])
    same("stacked", [both["b", "c"], torch.cat([data, data]).reshape(6)[1:3]["a"], list(both.batch_size)])
    model = TensorDictSequential(
        TensorDictModule(torch.nn.Linear(3, 4), ["x"], ["h"]), TensorDictModule(torch.nn.Linear(4, 2), ["h"], ["y"])
    )
    made = model(TensorDict({"x": torch.ones(5, 3)}, [5]))
    made["y"].sum().backward()
    same("modules", [made["y"], *[p.grad for p in model.parameters()]])
    with TensorDict.from_module(model).data.to_module(model):
        torch.testing.assert_close(model(TensorDict({"x": torch.ones(5, 3)}, [5]))["y"], made["y"])
    data.memmap(str(tmp_path / "data"))
    assert torch.equal(TensorDict.load_memmap(str(tmp_path / "data"))["a"], data["a"])

    @tensorclass
    class Point:
        x: torch.Tensor

    assert torch.stack([Point(x=torch.ones(2, 3), batch_size=[2])] * 2).x.shape == (2, 2, 3)


@needs("diffusers", "safetensors", "importlib_metadata", "httpx")
def test_diffusers(same, tmp_path: Path) -> None:
    import torch
    from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    noisy, images, noise = DDPMScheduler(100), torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for _ in range(3):
        steps = torch.tensor([10, 60])
        loss = torch.nn.functional.mse_loss(model(noisy.add_noise(images, noise, steps), steps).sample, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    same("losses", losses)
    sampler = DDIMScheduler(100)
    sampler.set_timesteps(4)
    x = noise
    with torch.no_grad():
        for step in sampler.timesteps:
            x = sampler.step(model(x, step).sample, step, x).prev_sample
    same("sampled", x[0, 0, 0], rtol=1e-3, atol=1e-4)
    model.save_pretrained(tmp_path / "unet")
    again = UNet2DModel.from_pretrained(tmp_path / "unet")
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))
