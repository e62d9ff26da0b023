"""Forward and backward hooks: look, change, take away again."""

import torch
import torch.nn as nn

torch.manual_seed(0)
unet = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
x = torch.randn(1, 1, 6, 6)
plain = unet(x)


def scale(module, input, output):
    return output * 0.5


handle = unet[2].register_forward_hook(scale)
print(torch.allclose(unet(x), plain * 0.5))
handle.remove()
print(torch.equal(unet(x), plain))

mask = torch.zeros(6, 6)
mask[2:4, 2:4] = 1.0


def boost(module, input, output):
    return output * (1 + 0.2 * mask)


handle = unet.register_forward_hook(boost)
ratio = unet(x) / plain
print(ratio[0, 0, 2, 2], ratio[0, 0, 0, 0])
handle.remove()

attention = nn.MultiheadAttention(8, 2, batch_first=True)
maps = {}


def keep(module, args, output):
    maps["weights"] = output[1].detach()


handle = attention.register_forward_hook(keep)
tokens = torch.randn(1, 5, 8)
attention(tokens, tokens, tokens)
print(maps["weights"].shape, maps["weights"].sum(-1))
handle.remove()
maps.clear()
attention(tokens, tokens, tokens)
print(maps)


def alarm(module, args, output):
    if output.abs().max() > 0.1:
        print("alarm")
        return torch.zeros_like(output)


with torch.no_grad():
    handle = unet.register_forward_hook(alarm)
    print(unet(x).abs().sum(), (unet(x * 0) == 0).all())
    handle.remove()
    print(torch.equal(unet(x), plain))

pre = unet.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
print(torch.allclose(unet(x), nn.Sequential(*unet)(2 * x)))
pre.remove()
seen = []
back = unet[0].register_full_backward_hook(
    lambda module, grad_input, grad_output: seen.append((grad_input[0].shape, grad_output[0].shape))
)
unet(x.clone().requires_grad_()).sum().backward()
print(seen)
back.remove()
t = torch.ones(3, requires_grad=True)
h = t.register_hook(lambda g: g * 2)
(t * 3).sum().backward()
h.remove()
(t * 3).sum().backward()
print(t.grad)


def broken(module, args, output):
    raise ValueError("the hook failed")


handle = unet.register_forward_hook(broken)
try:
    result = unet(x)
except ValueError as error:
    print(error)
    handle.remove()
    result = unet(x)  # fall back to the model as it was
print(torch.equal(result, plain))
