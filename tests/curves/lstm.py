"""A two-layer bidirectional LSTM over packed sequences of unequal length: is there a 1 before a 2?"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(4, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.head = nn.Linear(32, 1)

    def forward(self, rows, lengths):
        packed = pack_padded_sequence(self.embedding(rows), lengths, batch_first=True, enforce_sorted=False)
        out, (h, c) = self.lstm(packed)  # h, c: (4, B, 16)
        out, _ = pad_packed_sequence(out, batch_first=True)  # (B, T, 32)
        pooled = out.sum(1) / lengths.unsqueeze(1) + torch.cat((h[-2], c[-1]), dim=1)  # (B, 32)
        return self.head(pooled).squeeze(1)  # (B,)


def batch(size):
    rows = [torch.randint(4, (int(n),)) for n in torch.randint(3, 7, (size,))]
    y = torch.tensor(
        [float(any(a == 1 and 2 in row[i:] for i, a in enumerate(row))) for row in (r.tolist() for r in rows)]
    )
    return pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows]), y


def train(steps, seed=0):
    torch.manual_seed(seed)
    model = Net()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, momentum=0.5)
    losses = []
    for _ in range(steps):
        rows, lengths, y = batch(16)
        loss = F.binary_cross_entropy_with_logits(model(rows, lengths), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
