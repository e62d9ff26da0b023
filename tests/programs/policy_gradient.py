from collections import deque

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(9)
pi = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
vf = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.Adam([{"params": pi.parameters(), "lr": 1e-2}, {"params": vf.parameters(), "lr": 2e-2}])
rs = np.random.RandomState(0)


def step(s, a):
    s = 0.9 * s + 0.1 * rs.randn(4) + (a - 0.5) * 0.1
    return s, float(-abs(s[0]))


for ep in range(5):
    s = rs.randn(4)
    lps, rws, vals, ents = [], [], [], []
    for _t in range(15):
        x = torch.from_numpy(s).float().unsqueeze(0)
        lg = pi(x)
        lp = lg.log_softmax(-1)
        a = torch.multinomial(lp.exp(), 1).item()
        lps.append(lp[0, a])
        ents.append(-(lp * lp.exp()).sum())
        vals.append(vf(x).squeeze())
        s, r = step(s, a)
        rws.append(r)
    R, rets = 0, deque()
    for r in rws[::-1]:
        R = r + 0.99 * R
        rets.appendleft(R)
    rets = torch.tensor(list(rets))
    rets = (rets - rets.mean()) / (rets.std() + 1e-8)
    vals = torch.stack(vals)
    adv = rets - vals.detach()
    loss = (
        -(torch.stack(lps) * adv).sum()
        + 0.5 * nn.functional.smooth_l1_loss(vals, rets, reduction="sum")
        - 0.01 * torch.stack(ents).sum()
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(ep, f"{loss.item():.3f}", rets.dtype)


class Normal:
    def __init__(self, m, s):
        self.m, self.s = m, s

    def rsample(self):
        return self.m + self.s * torch.randn_like(self.m)

    def log_prob(self, x):
        return -((x - self.m) ** 2) / (2 * self.s**2) - self.s.log() - 0.5 * np.log(2 * np.pi)


mu = torch.zeros(3, requires_grad=True)
ls = torch.zeros(3, requires_grad=True)
d = Normal(mu, ls.exp())
x = d.rsample()
d.log_prob(x.detach()).sum().backward()
print(mu.grad, ls.grad)
