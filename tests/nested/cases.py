"""Expressions over nested tensors, run by PyTorch and by rushlight: results as printed, or the class of the error."""

from __future__ import annotations

from typing import Any

__all__ = ["EXPRESSIONS", "PROGRAMS", "names"]


def names(torch: Any) -> dict[str, Any]:
    """The tensors that the expressions use."""
    a, b = torch.arange(6.0).reshape(2, 3), torch.arange(3.0).reshape(1, 3) - 1
    nested = torch.nested.nested_tensor
    heads = [torch.arange(float(h)).reshape(2, -1, 3) / 10 for h in (12, 6)]
    return {
        "torch": torch, "F": torch.nn.functional, "a": a, "b": b, "N": nested([a, b]), "J": nested([a, b], layout=torch.jagged),
        "J2": nested([a, b], layout=torch.jagged), "q": nested(heads),
        "JL": torch.nested.nested_tensor_from_jagged(torch.arange(10.0).reshape(5, 2), torch.tensor([0, 2, 5]), torch.tensor([1, 2])),
        "qj": nested([x.transpose(0, 1) for x in heads], layout=torch.jagged).transpose(1, 2),
    }  # fmt: skip


EXPRESSIONS = """
N
J
torch.nested.nested_tensor([])
torch.nested.nested_tensor([[1,2],[3]])
torch.nested.nested_tensor([[1.,2],[3]],dtype=torch.float64)
torch.nested.nested_tensor([a,b],requires_grad=True)
torch.nested.nested_tensor([a,b],layout=torch.jagged,requires_grad=True)
torch.nested.nested_tensor([a,b],dtype=torch.int32)
torch.nested.nested_tensor([a,torch.ones(2)])
torch.nested.nested_tensor([a,torch.ones(2,4)],layout=torch.jagged)
torch.nested.nested_tensor(3)
torch.nested.nested_tensor([1.,2.])
torch.nested.as_nested_tensor([a,b])
torch.nested.as_nested_tensor([a,b],layout=torch.jagged)
torch.nested.as_nested_tensor(torch.ones(2,3))
torch.nested.as_nested_tensor(N)
torch.nested.as_nested_tensor([a,b],dtype=torch.float64)
torch.nested.nested_tensor_from_jagged(torch.arange(10.).reshape(5,2),torch.tensor([0,2,5]))
torch.nested.nested_tensor_from_jagged(torch.arange(10.).reshape(5,2),lengths=torch.tensor([2,3]))
torch.nested.nested_tensor_from_jagged(torch.arange(10.).reshape(5,2),torch.tensor([0,2,5]),torch.tensor([1,2]))
torch.nested.nested_tensor_from_jagged(torch.arange(10.).reshape(5,2))
torch.nested.nested_tensor_from_jagged(torch.arange(10.).reshape(2,5),torch.tensor([0,2,5]),jagged_dim=2)
J.shape
J.size()
J.size(0),J.size(2)
J.dim(),N.dim()
J.numel(),N.numel()
J.layout,N.layout
J.is_nested,N.is_nested,a.is_nested
N.size(0)
N.size(1)
N.size(2)
N.size()
N.shape
J.dtype
N.is_contiguous(),J.is_contiguous()
J.stride()
N.stride()
J.values()
N.values()
J.offsets()
J.lengths()
JL
JL.lengths()
JL.unbind()
JL.to_padded_tensor(0.)
N.offsets()
N.unbind()
J.unbind()
list(J)
N[0]
J[0]
N[0,1]
J[1][0]
N[1,:,0]
J[:,0]
J[:,:,0]
J[:1]
N.to_padded_tensor(0.)
J.to_padded_tensor(-1.)
torch.nested.to_padded_tensor(N,0.,(2,4,4))
torch.nested.to_padded_tensor(N,0.,(2,1,4))
torch.nested.to_padded_tensor(J,0.,(2,4,3))
torch.nested.to_padded_tensor(a,0.)
torch.nested.narrow(torch.arange(12.).reshape(3,4),1,torch.tensor([0,1,0]),torch.tensor([2,3,4]),layout=torch.jagged)
torch.nested.narrow(torch.arange(12.).reshape(3,4),1,0,torch.tensor([2,3,4]),layout=torch.jagged)
torch.nested.narrow(torch.arange(12.).reshape(3,4),1,torch.tensor([0,1,0]),torch.tensor([2,3,4])).unbind()
torch.nested.narrow(torch.arange(12.).reshape(3,4),1,torch.tensor([0,1,0]),torch.tensor([2,3,4]),layout=torch.jagged).unbind()
torch.nested.masked_select(torch.arange(6.).reshape(2,3),torch.tensor([[True,False,True],[False,True,False]]))
torch.nested.masked_select(torch.arange(6.).reshape(2,3),torch.tensor([[True,False,True],[False,True,False]])).values()
N.sin().unbind()
J.sin().unbind()
(J+J).unbind()
(N+N).unbind()
(J*2).unbind()
(N*2).unbind()
(2*J).unbind()
(J+torch.ones(3)).unbind()
(J*torch.ones(2,1,1)).unbind()
(J+J2).unbind()
(N+N.clone()).unbind()
(N*torch.ones(3)).unbind()
(N*torch.ones(2,1,3)).unbind()
(J==J).unbind()
(J>2).unbind()
(N>2).unbind()
N.relu().unbind()
F.silu(N).unbind()
J.neg().unbind()
(-N).unbind()
N.exp().unbind()
J.clamp(0,3).unbind()
torch.where(J>2,J,-J).unbind()
F.linear(J,torch.ones(2,3)).unbind()
F.linear(N,torch.ones(2,3)).unbind()
F.linear(J,torch.ones(2,3),torch.ones(2)).unbind()
torch.nn.Linear(3,2)(J).shape[2]
torch.matmul(J,torch.ones(3,2)).unbind()
torch.matmul(N,torch.ones(3,2)).unbind()
torch.matmul(N,N.transpose(1,2)).unbind()
torch.matmul(J,J.transpose(1,2)).unbind()
torch.bmm(N,N.transpose(1,2)).unbind()
J.transpose(1,2).shape
J.transpose(1,2).unbind()
N.transpose(1,2).unbind()
J.transpose(0,1)
torch.softmax(J,-1).unbind()
torch.softmax(N,-1).unbind()
torch.softmax(J,1).unbind()
torch.softmax(N,1).unbind()
torch.softmax(J,0)
J.sum()
N.sum()
J.sum(1)
J.sum(2)
J.sum(-1,keepdim=True).unbind()
N.sum(-1,keepdim=True).unbind()
N.sum(-1)
J.sum(0)
J.sum((1,2))
J.mean(1)
J.mean(2)
J.mean()
J.amax(1)
J.amin(1)
J.max(1)
J.prod(1)
J.any()
J.var(1)
F.layer_norm(J,(3,)).unbind()
F.layer_norm(N,(3,)).unbind()
F.dropout(J,0.).unbind()
F.dropout(N,0.).unbind()
F.embedding(torch.nested.nested_tensor([torch.tensor([0,1]),torch.tensor([2])],layout=torch.jagged),torch.arange(6.).reshape(3,2)).unbind()
F.embedding(torch.nested.nested_tensor([torch.tensor([0,1]),torch.tensor([2])]),torch.arange(6.).reshape(3,2)).unbind()
F.scaled_dot_product_attention(q,q,q).unbind()
F.scaled_dot_product_attention(qj,qj,qj).unbind()
J.clone().unbind()
J.detach().unbind()
J.to(torch.float64)
J.double().dtype
N.double().dtype
N.half().unbind()
J.contiguous().unbind()
J.reshape(2,-1,3,1).shape[3]
J.view(2,-1,3,1).unbind()
N.reshape(2,-1,1,3).unbind()
N.view(2,-1,3).unbind()
J.unflatten(-1,[3,1]).unbind()
J.flatten(1,2)
J.unsqueeze(-1).unbind()
J.squeeze(-1).unbind()
N.unsqueeze(1).unbind()
torch.cat([J,J],-1).unbind()
torch.cat([N,N],0).unbind()
J.chunk(3,-1)[0].unbind()
N.chunk(3,-1)[0].unbind()
J.split([1,2],-1)[1].unbind()
J.select(2,1).unbind()
N.select(0,1)
N.select(2,1).unbind()
torch.zeros_like(J).unbind()
torch.ones_like(N).unbind()
torch.zeros_like(N).unbind()
torch.empty_like(J).is_nested
torch.full_like(J,3.).unbind()
torch.rand_like(J).is_nested
N.zero_().unbind()
N.fill_(1.).unbind()
J.fill_(1.).unbind()
N.copy_(N*2).unbind()
J.numpy()
J.tolist()
N.item()
torch.allclose(J,J)
J.is_floating_point()
J.device
torch.stack([J,J])
N.to_padded_tensor(0.,(2,5,3)).shape
torch.nested.as_nested_tensor([a,b]).to(torch.float64).unbind()
torch.isnan(J).unbind()
J.requires_grad_().requires_grad
N.nested_size()
N._nested_tensor_size()
N.T
J.view(-1)
N.argmax()
torch.nn.ReLU()(J).unbind()
torch.nn.Sequential(torch.nn.Linear(3,4),torch.nn.GELU(),torch.nn.LayerNorm(4))(J).shape[2]
torch.addmm(a,a,a)
""".strip().split("\n")

# `R` notes a result.
PROGRAMS = """
x=a.clone().requires_grad_(); n=torch.nested.as_nested_tensor([x,b]); (n*n).unbind()[0].sum().backward(); R(x.grad)
x=a.clone().requires_grad_(); n=torch.nested.as_nested_tensor([x,b],layout=torch.jagged); (n*n).sum().backward(); R(x.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True); (n*2).to_padded_tensor(0.).sum().backward(); R(n.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True); n.unbind()[1].sum().backward(); R(n.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); (n*n).sum().backward(); R(n.grad.values())
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); n.mean(2).values().sum().backward(); R(n.grad.values())
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); w=torch.ones(2,3).requires_grad_(); F.linear(n,w).pow(2).sum().backward(); R(n.grad.values(),w.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True); w=torch.ones(2,3).requires_grad_(); F.linear(n,w).to_padded_tensor(0.).pow(2).sum().backward(); R(n.grad,w.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); F.layer_norm(n,(3,)).pow(3).sum().backward(); R(n.grad.values())
n=torch.nested.nested_tensor([a,b],requires_grad=True); w=torch.ones(3).requires_grad_(); c=torch.zeros(3).requires_grad_(); F.layer_norm(n,(3,),w,c).to_padded_tensor(0.).pow(3).sum().backward(); R(n.grad,w.grad,c.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); n.transpose(1,2).mul(3).sum().backward(); R(n.grad.values())
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); n.to_padded_tensor(0.).pow(2).sum().backward(); R(n.grad.values())
v=torch.arange(10.).reshape(5,2).requires_grad_(); n=torch.nested.nested_tensor_from_jagged(v,torch.tensor([0,2,5])); (n*n).sum().backward(); R(v.grad)
v=torch.arange(10.).reshape(5,2).requires_grad_(); n=torch.nested.nested_tensor_from_jagged(v,torch.tensor([0,2,5])); n.unbind()[1].sum().backward(); R(v.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); w=torch.ones(3).requires_grad_(); (n*w).sum().backward(); R(n.grad.values(),w.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); w=torch.ones(2,1,3).requires_grad_(); (n*w).sum().backward(); R(n.grad.values(),w.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True); torch.matmul(n,n.transpose(1,2)).to_padded_tensor(0.).sum().backward(); R(n.grad)
n=torch.nested.nested_tensor([a/9,b/9],requires_grad=True,layout=torch.jagged); q=n.unflatten(-1,[1,3]).transpose(1,2); F.scaled_dot_product_attention(q,q,q).transpose(1,2).pow(2).values().sum().backward(); R(n.grad.values())
v=torch.arange(12.).reshape(3,4).requires_grad_(); n=torch.nested.narrow(v,1,torch.tensor([0,1,0]),torch.tensor([2,3,4]),layout=torch.jagged); n.unbind()[1].sum().backward(); R(v.grad)
v=torch.arange(6.).reshape(2,3).requires_grad_(); n=torch.nested.masked_select(v,v.detach()>1); (n*2).sum().backward(); R(v.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True); y=n*2; y.backward(torch.nested.nested_tensor([a,b])); R(n.grad)
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); y=n*2; y.backward(y.detach()); R(n.grad.values())
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); y=n*2; R(torch.autograd.grad(y.sum(),n)[0].values())
n=torch.nested.nested_tensor([a,b],requires_grad=True,layout=torch.jagged); R(n*2, n[0])
n=torch.nested.nested_tensor([a,b],requires_grad=True); R(n*2, n[0], n.unbind())
e=torch.arange(8.).reshape(4,2).requires_grad_(); F.embedding(torch.nested.nested_tensor([torch.tensor([0,1]),torch.tensor([1])],layout=torch.jagged),e).sum().backward(); R(e.grad)
""".strip().split("\n")
