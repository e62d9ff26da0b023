"""Training and evaluation loops, saving and loading, DataParallel, a layer of one's own."""

import os
import tempfile

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class MyCustomLayer(nn.Module):
    def __init__(self, input_dim, output_dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(input_dim, output_dim))
        self.bias = nn.Parameter(torch.zeros(output_dim))

    def forward(self, x):
        return torch.matmul(x, self.weight) + self.bias


class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 16)
        self.drop = nn.Dropout(0.2)
        self.fc2 = MyCustomLayer(16, 3)

    def forward(self, x):
        return self.fc2(self.drop(torch.relu(self.fc1(x))))


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.randn(120, 6)
y = x[:, :3].argmax(1)
train_loader = DataLoader(TensorDataset(x[:90], y[:90]), batch_size=16, shuffle=True)
test_loader = DataLoader(TensorDataset(x[90:], y[90:]), batch_size=16)
model = nn.DataParallel(MyModel()).to(device)
print(model)
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters(), lr=0.01)
for epoch in range(5):
    model.train()
    running = 0.0
    for inputs, labels in train_loader:
        inputs, labels = inputs.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(f"Epoch {epoch + 1}, Loss: {running / len(train_loader):.4f}")


def evaluate(model):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for inputs, labels in test_loader:
            predicted = torch.max(model(inputs), 1)[1]
            total += labels.size(0)
            correct += (predicted == labels).sum().item()
    return 100 * correct / total


print(f"Accuracy: {evaluate(model):.1f}%")
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.pth")
    torch.save(model.module.state_dict(), path)
    again = MyModel()
    print(again.load_state_dict(torch.load(path)))
again.eval()
print(torch.equal(again(x), model.module(x)), evaluate(again) == evaluate(model))
print(list(model.state_dict()), list(again.state_dict()))
