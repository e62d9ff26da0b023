"""Images: kornia, timm."""

from __future__ import annotations

from tests.packages.environment import needs


@needs("kornia", "kornia_rs")
def test_kornia(same) -> None:
    import kornia
    import kornia.augmentation as augment
    import torch

    torch.manual_seed(0)
    x = torch.arange(2 * 3 * 16 * 16.0).reshape(2, 3, 16, 16).sin().abs().requires_grad_()
    same("filters", [kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)).mean(), kornia.filters.sobel(x).mean(), kornia.filters.median_blur(x, (3, 3)).mean()])
    same("edges", kornia.filters.canny(x.detach())[1].sum())
    same("colors", [kornia.color.rgb_to_hsv(x).mean(), kornia.color.rgb_to_lab(x).mean(), kornia.enhance.adjust_contrast(x, 0.7).mean()])
    same("geometry", [kornia.geometry.resize(x, (8, 8)).mean(), kornia.geometry.rotate(x, torch.tensor([30.0, 60.0])).mean()])
    moved = torch.eye(3)[None].repeat(2, 1, 1)
    moved[:, 0, 2] = 2
    same("perspective", kornia.geometry.warp_perspective(x, moved, (16, 16)).mean())
    same("features", kornia.feature.harris_response(x).abs().mean())
    same("losses", [kornia.losses.ssim_loss(x, x.flip(-1), 5), kornia.morphology.dilation(x, torch.ones(3, 3)).mean()])
    changes = augment.AugmentationSequential(
        augment.RandomHorizontalFlip(p=0.5), augment.RandomAffine(20.0, p=1.0), augment.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0), data_keys=["input"]
    )
    changed = changes(x)
    same("augmented", changed.mean())
    changed.mean().backward()
    same("gradient", x.grad.abs().mean())
