"""Twenty epochs over a TensorDataset."""

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2000, 10)
y = torch.randint(0, 2, (2000,)).float()
y = ((x.sum(1) + 0.3 * (y - 0.5)) > 0).float().unsqueeze(1)
dataloader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)


class SimpleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 50)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(50, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        return self.sigmoid(self.fc2(self.relu(self.fc1(x))))


model = SimpleNet()
criterion = nn.BCELoss()
optimizer = optim.SGD(model.parameters(), lr=0.01)
num_epochs, first, last = 20, None, None
for epoch in range(num_epochs):
    for inputs, labels in dataloader:
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"Epoch [{epoch + 1}/{num_epochs}], Loss: {loss.item():.4f}")
    first, last = first or loss.item(), loss.item()
print("falls" if last < first else "does not fall", len(dataloader), inputs.shape)
