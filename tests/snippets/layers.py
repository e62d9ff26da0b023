"""A model of one's own, and every layer, activation, norm, loss and optimizer of a first lesson."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


torch.manual_seed(0)
model = MyModel()
print(model)
print(model(torch.randn(2, 784)).shape, sum(p.numel() for p in model.parameters()))
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
print(model, model[0], len(model))

image, row, sequence = torch.randn(2, 3, 32, 32), torch.randn(4, 10), torch.randn(5, 3, 10)
for layer in (
    nn.Conv2d(3, 16, kernel_size=3, stride=1, padding=1), nn.Conv2d(3, 6, 3, groups=3, dilation=2), nn.BatchNorm2d(3), nn.MaxPool2d(2, 2),
    nn.AvgPool2d(2, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.ConvTranspose2d(3, 4, 2, stride=2), nn.Upsample(scale_factor=2), nn.GroupNorm(3, 3),
    nn.InstanceNorm2d(3), nn.Dropout2d(0.5), nn.Flatten(),
):  # fmt: skip
    print(layer, tuple(layer(image).shape))
for layer in (
    nn.Linear(10, 20), nn.LayerNorm(10), nn.BatchNorm1d(10), nn.Dropout(p=0.5), nn.ReLU(), nn.LeakyReLU(0.01), nn.PReLU(), nn.ELU(), nn.GELU(),
    nn.SiLU(), nn.Mish(), nn.Sigmoid(), nn.Tanh(), nn.Softmax(dim=1), nn.LogSoftmax(dim=1), nn.Identity(),
):  # fmt: skip
    print(layer, tuple(layer(row).shape), f"{layer.eval()(row).sum().item():.4f}")
for layer in (nn.RNN(10, 20, 2), nn.LSTM(10, 20, 2), nn.GRU(10, 20, 2), nn.LSTM(10, 20, bidirectional=True)):
    out, state = layer(sequence)
    print(layer, tuple(out.shape), [tuple(part.shape) for part in (state if isinstance(state, tuple) else (state,))])
print(nn.Embedding(10, 3)(torch.tensor([[1, 2], [4, 5]])).shape)
transformer = nn.Transformer(d_model=32, nhead=4, num_encoder_layers=1, num_decoder_layers=1, batch_first=True)
print(transformer(torch.randn(2, 10, 32), torch.randn(2, 7, 32)).shape)
attention = nn.MultiheadAttention(embed_dim=10, num_heads=2)
out, weights = attention(sequence, sequence, sequence)
print(out.shape, weights.shape, torch.allclose(weights.sum(-1), torch.ones(3, 5)))

logits, classes = torch.randn(4, 5), torch.tensor([1, 0, 4, 2])
print(f"{nn.CrossEntropyLoss()(logits, classes):.4f} {nn.NLLLoss()(F.log_softmax(logits, 1), classes):.4f}")
p, t = torch.rand(4, 5), torch.rand(4, 5)
for loss in (
    nn.MSELoss(),
    nn.L1Loss(),
    nn.SmoothL1Loss(),
    nn.HuberLoss(),
    nn.BCELoss(),
    nn.BCEWithLogitsLoss(),
    nn.KLDivLoss(reduction="batchmean"),
):
    print(loss, f"{loss(p, t):.4f}")


def init_weights(module):
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


model.apply(init_weights)
print([p.abs().sum().item() for name, p in model.named_parameters() if name.endswith("bias")])
bound = (6 / (784 + 128)) ** 0.5
print(model[0].weight.abs().max() <= bound, f"{model[0].weight.std():.4f}")

for optimizer in (
    torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), torch.optim.Adam(model.parameters(), lr=0.001),
    torch.optim.AdamW(model.parameters(), lr=0.001), torch.optim.RMSprop(model.parameters(), lr=0.01), torch.optim.Adagrad(model.parameters(), lr=0.01),
):  # fmt: skip
    loss = nn.CrossEntropyLoss()(model(torch.ones(2, 784)), torch.tensor([3, 4]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(type(optimizer).__name__, f"{loss.item():.4f}")
