"""Storages, strides and views."""

import torch

a = torch.arange(5)  # [0, 1, 2, 3, 4]
b = a[2:]
print(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr(), b.storage_offset())
b[1] = 0
print(a, b)
print(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())

c = torch.tensor([[1, 3, 5, 7], [7, 7, 7, 7]])
print(c.stride(0), c.stride(1), c.stride())

a = torch.arange(9).reshape(3, 3)
b = a.permute(1, 0)
print(a)
print(b)
for name, t in (("a", a), ("b", b)):
    print(name, t.size(), t.stride(), t.is_contiguous())
print(a.view(-1))
try:
    b.view(-1)
except RuntimeError as error:
    print(type(error).__name__, "at least one dimension spans across two contiguous subspaces" in str(error))
c = b.contiguous()
print(c.view(-1), c.stride())
pointers = [t.untyped_storage().data_ptr() for t in (a, b, c)]
print(pointers[0] == pointers[1], pointers[0] == pointers[2])
print(c.contiguous() is c)
