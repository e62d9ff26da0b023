"""What is contiguous, and what a view may be."""

import torch

x = torch.arange(6).reshape(2, 3)
print(x.is_contiguous(), x.t().is_contiguous(), x.t().contiguous().is_contiguous())
y = x.t()
print(
    y.stride(),
    y.contiguous().stride(),
    y.contiguous().data_ptr() == y.data_ptr(),
    x.contiguous().data_ptr() == x.data_ptr(),
)
print(y.reshape(-1), y.flatten())
print(y.view(3, 2, 1).shape, y.view(3, 1, 2).stride(), y.view(3, 2).shape)  # nothing is merged
print(
    torch.ones(3, 1).t().is_contiguous(),
    torch.ones(2, 1, 3).transpose(0, 1).is_contiguous(),
    x.permute(0, 1).is_contiguous(),
)
z = torch.arange(24).reshape(2, 3, 4)
w = z.transpose(0, 1).reshape(3, 2, 2, 2)
print(w.is_contiguous(), w.data_ptr() == z.data_ptr())
print(
    x.ravel().data_ptr() == x.data_ptr(), x.flatten().data_ptr() == x.data_ptr(), y.ravel().data_ptr() == y.data_ptr()
)
for call in (lambda: y.view(6), lambda: y.view(2, 3), lambda: z.permute(2, 0, 1).view(-1)):
    try:
        print(call())
    except RuntimeError as error:
        said = str(error)
        print(
            "one dimension spans across two contiguous subspaces" in said, said.endswith("Use .reshape(...) instead.")
        )
