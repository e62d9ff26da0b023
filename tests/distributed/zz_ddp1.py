import rushlight as torch, rushlight.distributed as dist
import rushlight.nn as nn
from rushlight.nn.parallel import DistributedDataParallel as DDP
def go(rank,size):
    import time
    torch.manual_seed(0)
    net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(16,16), nn.ReLU())])
    model = DDP(net, bucket_cap_mb=0.001)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(x):
        out = model(x)
        loss = out.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    import rushlight._dynamo as dyn
    c = torch.compile(step)
    x = torch.randn(3,16, generator=torch.Generator().manual_seed(rank))
    for i in range(4): r = c(x)
    segs=[(s.finished, s.reason) for s in c.entry.segments]
    m2 = torch.compile(model)
    for i in range(3): m2(x).sum().backward()
    f = getattr(m2,'_orig_mod',None)
    return segs, [(s.finished,s.reason) for s in m2.dynamo_ctx.entry.segments] if hasattr(m2,'dynamo_ctx') else [n for n in dir(m2) if 'comp' in n.lower()]
