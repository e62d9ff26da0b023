"""detach shares memory and leaves the graph; clone does the opposite."""

import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x * 2
d = y.detach()
print(d, d.requires_grad, d.untyped_storage().data_ptr() == y.untyped_storage().data_ptr())
d[0] = 10
print(y)
y = x.clone()
y[0] = 10
print(x, y)
z = x * 2
c = z.clone()
print(z.grad_fn.name(), c.grad_fn.name(), c.grad_fn.next_functions[0][0].name())
c.sum().backward()
print(x.grad)
e = z.detach().clone()
e[0] = -1
print(e, z, e.requires_grad)

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
(x * 2).sum().backward()
print(x.grad, x.is_leaf)
x.requires_grad_(False)
print(x.requires_grad)
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
with torch.no_grad():
    y = x * 2
    print(y.requires_grad)
z = x * 2
print(z.requires_grad)
y = x.exp()
y.detach()[0] = 7.0
try:
    y.sum().backward()
except RuntimeError as error:
    print("RuntimeError:", "modified by an inplace operation" in str(error))
t = x * 3
t.retain_grad()
u = t * 2
u.sum().backward()
print(t.grad, x.grad)
