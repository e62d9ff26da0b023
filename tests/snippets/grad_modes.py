"""Where gradients are recorded."""

import threading

import torch

x = torch.tensor([1.0], requires_grad=True)
with torch.no_grad():
    y = x * 2
print(y.requires_grad)


@torch.no_grad()
def doubler(x):
    return x * 2


print(doubler(x).requires_grad)
for is_train in (False, True):
    with torch.set_grad_enabled(is_train):
        y = x * 2
    print(y.requires_grad)
torch.set_grad_enabled(True)
print((x * 2).requires_grad, torch.is_grad_enabled())
torch.set_grad_enabled(False)
print((x * 2).requires_grad, torch.is_grad_enabled())
threading_sees = []
thread = threading.Thread(target=lambda: threading_sees.append(torch.is_grad_enabled()))
thread.start()
thread.join()
print(threading_sees)
torch.set_grad_enabled(True)
with torch.no_grad():
    with torch.enable_grad():
        print((x * 2).requires_grad)
    z = torch.ones(2, requires_grad=True)
    print(z.requires_grad, z.is_leaf)
with torch.inference_mode():
    y = x * x
    print(y.requires_grad, torch.is_inference_mode_enabled(), y.is_inference())
print(torch.is_inference_mode_enabled())
for call in (lambda: y._version, lambda: (x * y).sum().backward(), lambda: y.add_(1)):
    try:
        print(call())
    except RuntimeError as error:
        print("RuntimeError:", str(error).split(".")[0])
