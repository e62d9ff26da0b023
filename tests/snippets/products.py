"""Products of vectors, matrices and batches."""

import torch

torch.manual_seed(0)
x, y = torch.randn(2, 3), torch.randn(3, 4)
print(torch.matmul(x, y).shape, torch.mm(x, y).shape, (x @ y).shape)
print(torch.equal(torch.matmul(x, y), x @ y), torch.allclose(torch.mm(x, y), torch.einsum("ij,jk->ik", x, y)))
print(torch.bmm(torch.randn(10, 3, 4), torch.randn(10, 4, 5)).shape)
print(torch.matmul(torch.randn(7, 1, 3, 4), torch.randn(5, 4, 2)).shape)  # batch dims broadcast, as many as there are
u, v = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])
print(torch.dot(u, v), torch.dot(u, v).shape, u @ v)
print(torch.mv(y.T, u).shape, torch.einsum("i,i->", u, v), torch.einsum("ij->ji", x).shape)
print(torch.mv(torch.ones(3, 4), torch.arange(4.0)))
for call in (
    lambda: torch.mm(torch.ones(2, 3, 4), torch.ones(4, 5)),
    lambda: torch.bmm(torch.ones(1, 3, 4), torch.ones(10, 4, 5)),
    lambda: torch.dot(x, x),
    lambda: torch.mv(u, u),
    lambda: torch.mm(x, x),
):
    try:
        print(call())
    except RuntimeError as error:
        print("RuntimeError:", str(error).splitlines()[0])
