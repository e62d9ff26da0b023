"""A graph network sorts the members of a karate club into its two halves; it is told the side of two of them.

"Semi-Supervised Classification with Graph Convolutional Networks", Kipf and Welling, 2016 (arXiv:1609.02907), written
as message passing: every node sends a message along its edges, and adds up what it receives.  The graph is from "An
Information Flow Model for Conflict and Fission in Small Groups", Zachary, 1977: who met whom outside the club, before
it broke apart over a quarrel between its instructor (member 1) and its president (member 34).

    python -m rushlight examples/gnn_karate.py      with rushlight
    python examples/gnn_karate.py                   with PyTorch: the same program, the same numbers
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

# member: whom they met, among members of a higher number
MET = {
    1: [2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 18, 20, 22, 32], 2: [3, 4, 8, 14, 18, 20, 22, 31],
    3: [4, 8, 9, 10, 14, 28, 29, 33], 4: [8, 13, 14], 5: [7, 11], 6: [7, 11, 17], 7: [17], 9: [31, 33, 34],
    10: [34], 14: [34], 15: [33, 34], 16: [33, 34], 19: [33, 34], 20: [34], 21: [33, 34], 23: [33, 34],
    24: [26, 28, 30, 33, 34], 25: [26, 28, 32], 26: [32], 27: [30, 34], 28: [34], 29: [32, 34], 30: [33, 34],
    31: [33, 34], 32: [33, 34], 33: [34],
}  # fmt: skip
WITH_THE_INSTRUCTOR = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 18, 20, 22]


class GraphConv(nn.Module):
    """h_i' = W sum over neighbours j, and i itself, of h_j / sqrt(degree_i * degree_j)"""

    def __init__(self, width_in, width):
        super().__init__()
        self.linear = nn.Linear(width_in, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, h, edges):  # (N, C_in), (2, E)
        sender, receiver = edges
        degree = h.new_zeros(len(h)).scatter_add_(0, receiver, h.new_ones(len(receiver)))  # (N,)
        strength = (degree[sender] * degree[receiver]).rsqrt()  # (E,)
        messages = self.linear(h)[sender] * strength.unsqueeze(1)  # (E, C)
        received = h.new_zeros(len(h), messages.shape[1]).index_add_(0, receiver, messages)  # (N, C)
        return received + self.bias


class Net(nn.Module):
    def __init__(self, nodes, width=8, sides=2):
        super().__init__()
        self.conv1, self.conv2 = GraphConv(nodes, width), GraphConv(width, sides)

    def forward(self, h, edges):
        return self.conv2(torch.tanh(self.conv1(h, edges)), edges)  # (N, sides)


def load_graph():
    """Edges in both directions and from every node to itself (2, E), and each member's side (N,)."""
    pairs = torch.tensor([(a - 1, b - 1) for a, others in MET.items() for b in others]).T  # (2, 78)
    nodes = int(pairs.max()) + 1
    itself = torch.arange(nodes).expand(2, nodes)
    side = torch.ones(nodes, dtype=torch.long)
    side[torch.tensor(WITH_THE_INSTRUCTOR) - 1] = 0
    return torch.cat((pairs, pairs.flip(0), itself), dim=1), side


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of all steps, the network, and the graph."""
    torch.manual_seed(seed)
    edges, side = (x.to(device) for x in load_graph())
    nodes = len(side)
    known = torch.tensor([0, nodes - 1])  # the instructor and the president
    who = torch.eye(nodes, device=device)  # (N, N): nothing is known of a member but who they are
    model = Net(nodes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-3)
    losses = []
    for step in range(steps):
        logits = model(who, edges)  # (N, 2)
        loss = F.cross_entropy(logits[known], side[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 25 == 24:
            right = (logits.argmax(1) == side).sum().item()
            log(f"step {step + 1}: loss {losses[-1]:.4f}, {right} of {nodes} on the right side")
    return losses, model, who, edges, side


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    losses, model, who, edges, side = train(args.steps, args.seed, log=print, device=args.device)
    with torch.no_grad():
        found = model(who, edges).argmax(1)
    wrong = (found != side).nonzero().flatten() + 1
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; members on the wrong side: {wrong.tolist() or 'none'}")
    if len(wrong) > 3:
        raise SystemExit(f"at most 3 should be (after 100 steps, the default); it made {args.steps}")


if __name__ == "__main__":
    main()
