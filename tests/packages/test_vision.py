"""Images: kornia, torchvision, timm."""

from __future__ import annotations

import functools

import pytest
from tests.packages.environment import WRITING, needs


@needs("kornia", "kornia_rs")
def test_kornia(same) -> None:
    import kornia
    import kornia.augmentation as augment
    import torch

    torch.manual_seed(0)
    x = torch.arange(2 * 3 * 16 * 16.0).reshape(2, 3, 16, 16).sin().abs().requires_grad_()
    same(
        "filters",
        [
            kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)).mean(),
            kornia.filters.sobel(x).mean(),
            kornia.filters.median_blur(x, (3, 3)).mean(),
        ],
    )
    same("edges", kornia.filters.canny(x.detach())[1].sum())
    same(
        "colors",
        [
            kornia.color.rgb_to_hsv(x).mean(),
            kornia.color.rgb_to_lab(x).mean(),
            kornia.enhance.adjust_contrast(x, 0.7).mean(),
        ],
    )
    same(
        "geometry",
        [kornia.geometry.resize(x, (8, 8)).mean(), kornia.geometry.rotate(x, torch.tensor([30.0, 60.0])).mean()],
    )
    moved = torch.eye(3)[None].repeat(2, 1, 1)
    moved[:, 0, 2] = 2
    same("perspective", kornia.geometry.warp_perspective(x, moved, (16, 16)).mean())
    same("features", kornia.feature.harris_response(x).abs().mean())
    same("losses", [kornia.losses.ssim_loss(x, x.flip(-1), 5), kornia.morphology.dilation(x, torch.ones(3, 3)).mean()])
    changes = augment.AugmentationSequential(
        augment.RandomHorizontalFlip(p=0.5),
        augment.RandomAffine(20.0, p=1.0),
        augment.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
        data_keys=["input"],
    )
    changed = changes(x)
    same("augmented", changed.mean())
    changed.mean().backward()
    same("gradient", x.grad.abs().mean())


@functools.cache
def _prepare() -> None:
    """Where real PyTorch has not loaded torchvision's native library, its operators must at least be declared; here they need not."""
    import torch

    if WRITING:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")


@needs("torchvision")
def test_torchvision(same) -> None:
    _prepare()
    import torch
    import torchvision
    from torchvision import models, transforms
    from torchvision.transforms import v2

    torch.manual_seed(0)
    net = models.resnet18(num_classes=4)
    x = torch.randn(4, 3, 64, 64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    losses = []
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(net(x), torch.tensor([1, 3, 0, 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    same("resnet18", losses, rtol=1e-3)
    several = [
        transforms.Resize(40),
        transforms.CenterCrop(32),
        transforms.RandomHorizontalFlip(),
        transforms.Normalize([0.5] * 3, [0.2] * 3),
    ]
    same("transforms", transforms.Compose(several)(x).mean(), atol=1e-5)
    newer = v2.Compose([v2.RandomResizedCrop(32, antialias=True), v2.ColorJitter(0.2, 0.2), v2.ToDtype(torch.float32)])
    same("transforms.v2", newer(x.sigmoid()).mean())
    assert torchvision.utils.make_grid(x, nrow=2).shape == (3, 134, 134)
    if not WRITING:
        with pytest.raises(RuntimeError, match="custom C\\+\\+ ops"):  # torchvision's own words
            torchvision.ops.nms(torch.tensor([[0.0, 0, 1, 1]]), torch.ones(1), 0.5)


@needs("timm", "torchvision")
def test_timm(same) -> None:
    _prepare()
    import timm
    import torch
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler

    torch.manual_seed(0)
    x = torch.randn(2, 3, 64, 64)
    for name, more in (
        ("resnet18", {}),
        ("vit_tiny_patch16_224", {"img_size": 64}),
        ("convnext_atto", {}),
        ("efficientnet_b0", {}),
    ):
        net = timm.create_model(name, num_classes=3, **more)
        loss = torch.nn.functional.cross_entropy(net(x), torch.tensor([0, 2]))
        loss.backward()
        same(name, loss, rtol=1e-3)
    optimizer = create_optimizer_v2(net, "lamb", lr=0.01)
    schedule = CosineLRScheduler(optimizer, 10, warmup_t=2, warmup_lr_init=1e-4)
    optimizer.step()
    schedule.step(1)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.00505)
