"""Expressions over sparse tensors, run by PyTorch and by rushlight: results as printed, or the class of the error."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["EXPRESSIONS", "OF_ANY_DTYPE", "PROGRAMS", "names", "of_dtype"]


def names(torch: Any) -> dict[str, Any]:
    """The tensors that the expressions use."""
    i, v = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
    plain = torch.sparse_coo_tensor(i, v, (2, 3))
    return {
        "torch": torch, "F": torch.nn.functional, "i": i, "v": v, "S": plain, "Sc": plain.coalesce(),
        "U": torch.sparse_coo_tensor(torch.tensor([[1, 0, 1], [0, 2, 0]]), v, (2, 3)),
        "H": torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2, 2), (3, 2)),
        "C": plain.to_sparse_csr(), "Csc": plain.to_sparse_csc(), "C2": torch.tensor([[1.0, 0, 2], [0, 3, 4]]).to_sparse_csr(),
        "Q": torch.tensor([[1.0, 0, 2], [0, 3, 4], [5, 0, 0]]).to_sparse(), "D": torch.arange(6.0).reshape(2, 3), "D3": torch.ones(2, 3) * 3,
        "B": torch.eye(4).to_sparse_bsr((2, 2)), "K": torch.arange(12.0).reshape(3, 4),
        "T3": torch.tensor([[[1.0, 0, 2], [0, 3, 0]], [[0, 0, 4], [5, 0, 0]]]).to_sparse(),
    }  # fmt: skip


EXPRESSIONS = """
S+torch.zeros(2,3).to_sparse(1)
torch.zeros(2,3).to_sparse(1)+Sc
torch.add(torch.zeros(2,3).to_sparse(1),S,alpha=3)
S.int()+torch.zeros(2,3).to_sparse(1)
H.sum(-1,keepdim=True)
H.sum(0,keepdim=True)
Sc.sum((0,1),keepdim=True)
Sc.sum(0,keepdim=True)
Sc.sum(1,keepdim=True)
T3.sum((0,2),keepdim=True)
T3.sum(1,keepdim=True)
torch.sparse_coo_tensor([[0,1]],torch.ones(2,2,3),(3,2,3)).sum(2,keepdim=True)
torch.sparse_coo_tensor([[0,1]],torch.ones(2,2,3),(3,2,3)).sum((0,2),keepdim=True)
torch.sparse_coo_tensor([[0,1]],torch.ones(2,2,3),(3,2,3)).sum(1,keepdim=True)
torch.sparse_coo_tensor([[0,1]],torch.ones(2,2,3),(3,2,3)).sum((1,2),keepdim=True)
S
U
H
C
C.to_sparse_csc()
torch.eye(4).to_sparse_bsr((2,2))
torch.sparse_coo_tensor(i,v)
torch.sparse_coo_tensor(i,v,requires_grad=True)
torch.sparse_coo_tensor(i,v.double())
torch.sparse_coo_tensor(i,v.int())
torch.sparse_coo_tensor(size=(2,3))
torch.sparse_coo_tensor((2,3))
torch.sparse_coo_tensor([2,3])
torch.sparse_coo_tensor(i,v,(2,3)).is_coalesced()
torch.sparse_coo_tensor(i,v,(2,3),is_coalesced=True).is_coalesced()
torch.sparse_coo_tensor(i,v,(1,3))
torch.sparse_coo_tensor(i,v,(1,3),check_invariants=False)
torch.sparse_coo_tensor(i,v,(2,3,4))
torch.sparse_coo_tensor(i-1,v)
torch.sparse_coo_tensor(i-1,v,(2,3))
torch.sparse_coo_tensor(i.float(),v)
torch.sparse_coo_tensor(i[0],v)
torch.sparse_coo_tensor(i,v[:2])
torch.sparse_coo_tensor([[0,1],[1,0]],[1,2])
torch.sparse_coo_tensor([[0,1],[1,0]],[1.,2],dtype=torch.float64)
torch.sparse_coo_tensor(torch.zeros(1,0),[],[1])
torch.sparse_coo_tensor(torch.empty([1,0]),torch.empty([0,2]),[1,2])
torch.sparse_coo_tensor(torch.empty([0]),[],[])
torch.sparse_coo_tensor(torch.empty([0]),[],[2])
torch.sparse_coo_tensor(torch.empty([0,1]),[3.],[])
torch.sparse_csr_tensor([0,2,4],[0,1,0,1],[1,2,3,4])
torch.sparse_csr_tensor([0,2,4],[0,1,0,1],[1,2,3,4],dtype=torch.double,size=(2,2))
torch.sparse_csr_tensor(torch.tensor([0,2,4],dtype=torch.int32),torch.tensor([0,1,0,1],dtype=torch.int32),torch.tensor([1.,2,3,4]))
torch.sparse_csr_tensor([0,2,4],[0,1,0,5],[1,2,3,4],size=(2,2))
torch.sparse_csr_tensor([0,2,4],[0,1,0,5],[1,2,3,4],size=(2,2),check_invariants=True)
torch.sparse_csr_tensor([0,2,5],[0,1,0,1],[1,2,3,4],size=(2,2))
torch.sparse_csr_tensor([0,2,5],[0,1,0,1],[1,2,3,4],size=(2,2),check_invariants=True)
torch.sparse_csr_tensor([0,2],[0,1,0,1],[1,2,3,4],size=(2,2),check_invariants=True)
torch.sparse_csr_tensor([0,2,4],[1,0,0,1],[1,2,3,4],size=(2,2),check_invariants=True)
torch.sparse_csr_tensor([1,2,4],[0,1,0,1],[1,2,3,4],size=(2,2),check_invariants=True)
torch.sparse_csr_tensor([0,2,4],[0,1,0],[1,2,3,4],size=(2,2),check_invariants=True)
torch.sparse_csr_tensor([0,2,4],[0,1,0,1],[1,2,3,4],size=(2,),check_invariants=True)
torch.sparse_csr_tensor(torch.tensor([0,2,4.]),[0,1,0,1],[1,2,3,4],size=(2,2),check_invariants=True)
torch.sparse_csr_tensor([[0,2,4],[0,3,4]],[[0,1,0,1],[0,1,2,0]],[[1,2,3,4],[5,6,7,8]],size=(2,2,3))
torch.sparse_compressed_tensor([0,2,4],[0,1,0,1],[1,2,3,4])
torch.sparse_compressed_tensor([0,2,4],[0,1,0,1],[1,2,3,4],layout=torch.sparse_csc)
torch.sparse_bsr_tensor([0,1,2],[0,1],[[[3,4],[5,6]],[[1,2],[3,4]]])
torch.sparse_bsc_tensor([0,1,2],[0,1],[[[3,4],[5,6]],[[1,2],[3,4]]])
torch.sparse_coo_tensor(i,v,(2,3),dtype=torch.float64).requires_grad_()
torch.sparse_coo_tensor(i,v.clone().requires_grad_(),(2,3))
S.clone().requires_grad_().coalesce()
U.clone().requires_grad_().coalesce()
U.clone().requires_grad_()*2
U.clone().requires_grad_().to_dense()
S.indices()
U.indices()
U._indices()
S.values()
U.values()
S.stride()
C.stride()
C.is_contiguous()
C.crow_indices()
C.ccol_indices()
C.indices()
S.crow_indices()
C._indices()
C._values()
torch.ones(2).values()
torch.ones(2)._nnz()
torch.ones(2).indices()
torch.ones(2).coalesce()
torch.ones(2).is_coalesced()
torch.ones(2).sparse_dim()
torch.ones(2).dense_dim()
torch.ones(2).crow_indices()
torch.ones(2).to_dense()
torch.ones(2,3).to_sparse(1)
torch.ones(2,3).to_sparse(3)
torch.ones(2,3).to_sparse(0)
torch.ones(2).to_sparse_csr()
torch.ones(2,2).to_sparse_bsr((3,2))
torch.ones(2,2).to_sparse(layout=torch.sparse_bsr)
torch.ones(2,2).to_sparse(layout=torch.sparse_csr,blocksize=(1,1))
torch.ones(2,2).to_sparse(1,layout=torch.sparse_csr)
torch.ones(2,2,2).to_sparse_csr(dense_dim=1)
torch.ones(2,2,2).to_sparse_csr()
C.to_sparse(layout=torch.strided)
C.to_sparse()
C.to_sparse(2)
C.to_sparse(1)
S.to_sparse(1)
S.size(0), S.numel(), len(S), S.is_sparse, S.is_sparse_csr, C.is_sparse, C.is_sparse_csr, S.layout,C.layout
torch.zeros(2,3,layout=torch.sparse_coo)
torch.zeros(2,3,layout=torch.sparse_csr)
torch.ones(2,3,layout=torch.sparse_coo)
torch.empty(2,3,layout=torch.sparse_bsr)
torch.zeros_like(S)
torch.zeros_like(C)
torch.empty_like(S)
torch.ones_like(S)
torch.ones_like(C)
torch.full_like(S,2)
torch.rand_like(S)
torch.rand_like(C)
torch.zeros_like(v,layout=torch.sparse_coo)
torch.empty_like(S,layout=torch.strided).shape
torch.zeros_like(S,layout=torch.strided)
torch.empty_like(torch.ones(2,3),layout=torch.sparse_coo)
torch.empty_like(torch.ones(2,3),layout=torch.sparse_csr)
S.new_zeros(2,3)
S.new_empty(2,3)
S.new_ones(2,3)
S.new_tensor([1,2])
[torch.ones(2,2).to_sparse_csc().is_sparse_csr, torch.ones(2,2).to_sparse_bsr((1,1)).is_sparse_csr, torch.ones(2,2).to_sparse_bsc((1,1)).is_sparse_csr]
torch.eye(4).to_sparse_bsr((2,2)).select(0,1)
torch.eye(4).to_sparse_bsc((2,2))[:,3]
torch.stack([torch.eye(2),torch.eye(2)*2]).to_sparse_csr()[1]
torch.stack([torch.eye(2),torch.eye(2)*2]).to_sparse_csr().select(1,0)
torch.arange(8.).reshape(2,2,2).to_sparse_csr(dense_dim=1).select(2,1)
S.__setitem__((0,0),1.)
C.__setitem__(0,1.)
torch.sparse_coo_tensor([[0,1]],[[1.,2.],[3.,4.]],(3,2)).coalesce()*torch.sparse_coo_tensor([[0,1]],[[2.],[3.]],(3,1)).coalesce()
torch.sparse_coo_tensor([[0,0]],[1.,2.],(3,),is_coalesced=True,check_invariants=True)
torch.sparse.spdiags(torch.ones(1,3),torch.tensor([0]),(0,4))
torch.sparse.spdiags(torch.ones(1,3),torch.tensor([3]),(3,3))
S.data
C.data
S.H
S.T
C.T
C.mT
S[0]
S[0,2]
S[0:1]
C[0]
C[0,2]
C[0:1]
S[torch.tensor([0])]
bool(S)
S.item()
S.tolist()
S.numpy()
S == S
C == C
S.eq(0)
torch.equal(S,S)
torch.allclose(S,S)
S.data_ptr()
S.storage()
S.untyped_storage()
S.unbind(0)
S.type()
C.type()
S.int().type()
S.numel()
S.nbytes
C.nbytes
S.itemsize
S.is_leaf
S._version
S.element_size()
U.abs()
U.neg()
U.clone().abs_()
U.clone().neg_()
U.clone().mul_(2).is_coalesced()
U.sin()
U.clone().sin_()
U.sqrt()
U+U
Sc+Sc
Sc+Sc.double()
Sc+torch.sparse_coo_tensor(i,v,(2,4))
Sc.add(Sc,alpha=2)
S*S
U*D
(U*D).is_coalesced()
D*U
D3*U
Sc*D[0]
Sc*D[:,:1]
Sc*torch.ones(4,2,3)
Sc*torch.ones(2,1,1)
Sc*torch.tensor(2.)
Sc*torch.tensor([2.])
torch.tensor(2.)*Sc
torch.tensor(2.,dtype=torch.float64)*Sc
Sc.int()*2.5
Sc.int()/2
Sc/2
Sc/torch.tensor(2.)
Sc/torch.tensor([2.])
U/2
Sc.div(2,rounding_mode='floor')
U.div(2,rounding_mode='floor')
Sc//2
U//2
Sc%2
2*Sc
2/Sc
2-Sc
2+Sc
Sc-2
Sc**2
U**2
Sc**2.5
Sc**0
Sc**-1
2**Sc
Sc.pow(Sc)
D+Sc
D+H
D-Sc
D+U
D.clone().add_(U)
D.clone().add_(Sc,alpha=2)
D.clone().sub_(Sc)
D[0]+Sc
torch.ones(1,3)+Sc
D.double()+Sc
D.int()+Sc
D.clone().mul_(Sc)
D/Sc
Sc==0
C+C
C+D
D+C
C+Sc
Sc+C
C+Csc
C*2
C*torch.tensor(2.)
C*D
C*D[0]
D*C
C*C
C*C2
C+C2
C.add(C2,alpha=2)
C-C2
C*Csc
C*Sc
Sc*C
C/2
C/torch.tensor(2.)
B*2
B*B
B+B
B*torch.ones(4,4)
torch.ones(4,4)+B
C.clone().add_(C)
C.clone().mul_(2)
C.clone().div_(2)
-C
C**2
Sc.isnan()
Sc.sum()
Sc.sum(0)
Sc.sum(1)
Sc.sum((0,1))
Sc.sum(0,keepdim=True)
Sc.sum(dtype=torch.float64)
H.sum(1)
H.sum(0)
C.sum()
C.sum(0)
C.sum(0,keepdim=True)
C.sum(1,keepdim=True)
C.sum((0,1),keepdim=True)
C.sum(dtype=torch.float64)
B.sum()
torch.sparse.sum(Sc)
torch.sparse.sum(Sc,0)
torch.sparse.sum(Sc,dim=[0,1])
torch.sparse.sum(Sc,dtype=torch.float64)
torch.sparse.sum(H,1)
torch.sparse.sum(H,0)
torch.sparse.sum(H,(0,1))
torch.sparse.sum(U)
torch.sparse.sum(U,0)
torch.sparse.sum(C)
torch.sparse.sum(D)
Sc.mean()
Sc.norm()
Sc.norm(1)
Sc.norm(2,0)
Sc.norm(float('inf'))
torch.norm(U)
torch.linalg.vector_norm(Sc)
C.norm()
C.mean()
Sc.any()
Sc.all()
Sc.any(0)
C.any()
Sc.max()
Sc.prod()
torch.sparse.softmax(Sc,1)
torch.sparse.softmax(Sc,0)
torch.sparse.softmax(H,1)
torch.sparse.softmax(H,0)
torch.sparse.softmax(U,0)
torch.sparse.log_softmax(Sc,1)
torch.sparse.softmax(Sc,1,dtype=torch.float64)
torch.sparse.softmax(C,1)
torch.softmax(Sc,1)
Sc.softmax(1)
torch.nn.functional.softmax(Sc,1)
torch.sparse.softmax(Sc.int(),1)
torch.sparse.softmax(D,1)
torch.sparse.spdiags(torch.ones(2,3),torch.tensor([0,1]),(3,3))
torch.sparse.spdiags(torch.ones(2,3),torch.tensor([0,-1]),(3,3),layout=torch.sparse_csr)
torch.sparse.spdiags(torch.arange(9).reshape(3,3),torch.tensor([0,2,-1]),(5,4))
torch.sparse.spdiags(torch.ones(2,3),torch.tensor([0,0]),(3,3))
torch.sparse.spdiags(torch.ones(2,3),torch.tensor([0]),(3,3))
torch.sparse.spdiags(torch.ones(2,3),torch.tensor([0,1]),(3,3),layout=torch.sparse_bsr)
torch.sparse.spdiags(torch.ones(3),torch.tensor([0]),(3,3))
torch.sparse.spdiags(torch.ones(3),torch.tensor(1),(3,3))
torch.sparse.spdiags(torch.ones(3),torch.tensor([5]),(3,3))
torch.sparse.spsolve(C,D[0])
torch.sparse.to_sparse_semi_structured(D.half())
torch.mm(Sc,D.t())
torch.mm(U,D.t())
torch.mm(D,Q)
torch.mm(D.t(),Sc)
torch.mm(Q,Q)
torch.mm(Sc,Q)
torch.mm(C,D.t())
torch.mm(D.t(),C)
torch.mm(C,C2.t())
torch.mm(C,C2)
torch.mm(Csc,D.t())
torch.mm(D.t(),Csc)
torch.mm(C,Q)
torch.mm(Q,C)
torch.mm(B,torch.ones(4,2))
torch.mm(torch.ones(2,4),B)
torch.mm(torch.ones(2,4),B.t())
torch.mm(B,B)
torch.mm(Sc,Sc)
torch.mm(H,D)
torch.mm(Sc,D.double().t())
torch.mm(Sc,D)
Sc@D.t()
Sc@v
Q@v
Q@Q
D@Q
v@Q
C@v
Csc@v
B@torch.ones(4)
Q.mv(v)
Q@torch.ones(2,3,3)
torch.ones(2,3,3)@Q
torch.bmm(T3,torch.ones(2,3,2))
torch.bmm(T3,T3)
torch.bmm(Sc,D)
torch.bmm(T3,torch.ones(3,3,2))
torch.addmm(torch.ones(2,2),Sc,D.t())
torch.addmm(torch.ones(2,2),Sc,D.t(),beta=2,alpha=3)
torch.addmm(torch.ones(2),Sc,D.t())
torch.addmm(torch.ones(2,2),C,D.t())
torch.addmm(C@C.t(),C,C2.t())
torch.addmm(Q,Q,Q)
torch.addmm(Q,Q,torch.ones(3,3))
torch.addmm(torch.ones(3,3),Q,Q)
torch.addmm(torch.ones(3,3),torch.ones(3,3),C2.t()@C2)
torch.addmv(v,Q,v)
torch.addmv(torch.ones(2),C,v)
torch.baddbmm(torch.ones(2,2,2),T3,torch.ones(2,3,2))
torch.sparse.mm(Sc,D.t())
torch.sparse.mm(D,Q)
torch.sparse.mm(Q,Q)
torch.sparse.mm(D,D.t())
torch.sparse.mm(C,D.t(),'sum')
torch.sparse.mm(C,D.t(),'mean')
torch.sparse.mm(C,D.t(),'amax')
torch.sparse.mm(C,-D.t(),reduce='amin')
torch.sparse.mm(C,D.t(),'max')
torch.sparse.mm(Sc,D.t(),'sum')
torch.sparse.addmm(torch.ones(2,2),Sc,D.t())
torch.sparse.addmm(torch.ones(2,2),Sc,D.t(),beta=2,alpha=.5)
torch.sparse.sampled_addmm(C,D,torch.ones(3,3))
torch.sparse.sampled_addmm(C,D,torch.ones(3,3),beta=.5,alpha=2)
torch.sparse.sampled_addmm(C,D,torch.ones(3,2))
torch.sparse.sampled_addmm(Sc,D,torch.ones(3,3))
torch.sparse.sampled_addmm(D,D,torch.ones(3,3))
torch.sparse.sampled_addmm(C,D.double(),torch.ones(3,3))
torch.smm(Sc,D.t())
torch.spmm(Sc,D.t())
torch.spmm(Q,Q)
torch.hspmm(Sc,D.t())
torch.hspmm(U,D.t())
torch.sspaddmm(Q,Q,torch.ones(3,3))
torch.sspaddmm(Q,Q,torch.ones(3,3),beta=2,alpha=3).to_dense()
Sc.sspaddmm(Sc,torch.ones(3,3))
Sc.smm(D.t())
Q.t()
T3.transpose(0,2)
T3.permute(2,0,1)
T3.permute(0,1)
H.t()
H.transpose(0,1)
torch.sparse_coo_tensor([[0,1]],torch.ones(2,2,3),(3,2,3)).transpose(1,2)
T3.movedim(0,2)
Q.clone().t_()
C.t()
C.clone().t_()
C.transpose(0,1).to_dense()
torch.ones(2,3,4).to_sparse_csr().transpose(1,2).layout
torch.ones(2,3,4).to_sparse_csr().transpose(0,1).layout
B.t()
T3.select(1,0)
T3.select(2,1)
H.select(1,0)
H.select(0,1)
H.select(0,2)
H[0]
H[2,1]
T3[0,1]
T3[0,1,1]
T3[...,0]
T3[:,0]
Q[None]
Q[-1]
Q[5]
T3.index_select(1,torch.tensor([1,0,1]))
T3.index_select(0,torch.tensor([-1]))
H.index_select(1,torch.tensor([1]))
Q.index_select(0,torch.tensor([5]))
Q.index_select(0,torch.tensor([0.]))
Q.index_select(0,torch.tensor([],dtype=torch.long))
Q.narrow_copy(0,1,2)
Q.narrow_copy(1,-2,2)
H.narrow_copy(1,1,1)
Q.narrow_copy(0,2,2)
Q.narrow(0,1,2)
torch.cat([Q,Q])
torch.cat([Q,Q],1)
torch.cat([H,H],1)
torch.cat([H,H],0)
torch.cat([Q,D])
torch.cat([Q,H])
torch.cat([C,C])
torch.stack([Q,Q])
torch.stack([Q,Q],-1)
torch.vstack([Q,Q])
torch.hstack([Q,Q])
Q.unsqueeze(0)
Q.unsqueeze(-1)
H.unsqueeze(1)
H.unsqueeze(2)
Q.squeeze()
Q.unbind(1)
Q.reshape(9)
Q.view(9)
Q.flatten()
Q.expand(2,3,3)
Q.chunk(2)
Q.split(1)
Q.diagonal()
Q.trace()
Q.sparse_mask(Q)
K[:, :3].sparse_mask(Q)
Q.sparse_mask(torch.sparse_coo_tensor([[0,0],[0,1]],[1.,1],(3,3)).coalesce())
D.sparse_mask(U)
Sc.sparse_mask(U)
D.sparse_mask(C)
C.sparse_mask(C2)
D.sparse_mask(Q)
D.sparse_mask(D)
Q.clone().sparse_resize_((4,5),2,0)
Q.clone().sparse_resize_((2,2),2,0)
Q.clone().sparse_resize_((3,3,2),2,1)
Q.clone().sparse_resize_((3,3),1,1)
Q.clone().sparse_resize_and_clear_((3,3,2),2,1)
Q.clone().resize_as_sparse_(torch.sparse_coo_tensor((4,4)))
Q.clone().zero_()
H.clone().zero_()
C.clone().zero_()
B.clone().zero_()
Q.clone().copy_(Q*2)
Q.clone().copy_(D)
Q.clone().copy_(Sc)
C.clone().copy_(C*2)
D.copy_(Sc)
Q.to(torch.float64)
Q.to('cpu')
Q.to(Q.double())
Q.double()
Q.bool()
U.bool()
Q.half()
Q.to(torch.int32).sum()
C.to(torch.float64)
C.to_sparse_bsr((1,3))
B.to_sparse_bsr((1,1))
B.to_sparse_bsc((2,2))
B.to_sparse_csr()
B.to_sparse()
Csc.to_sparse()
Csc.to_sparse_csr()
Q.to_sparse_bsr((3,1))
Q.to_sparse_bsc((1,3))
Q.to_sparse_bsr((2,1))
Q.to_sparse_csr()
U.to_sparse_csr()
T3.to_sparse_csr()
H.to_sparse_csr()
torch.ones(2,3,4).to_sparse_csr().to_sparse()
torch.ones(2,3,4).to_sparse_csr().to_dense().sum()
torch.ones(2,4,4).to_sparse_bsr((2,2)).shape
torch.ones(2,4,4).to_sparse_bsr((2,2)).to_dense().sum()
torch.ones(2,4,4).to_sparse_bsr((2,2)).to_sparse_bsc((2,2))
torch.stack([torch.eye(2),torch.ones(2,2)]).to_sparse_csr()
torch.tensor(3.).to_sparse()
torch.tensor(0.).to_sparse()
torch.zeros(0,3).to_sparse()
torch.zeros(0,3).to_sparse_csr()
torch.zeros(2,3).to_sparse_csr()
torch.zeros(3,0).to_sparse_csr()
torch.zeros(2,3).to_sparse().to_sparse_csr()
torch.crow_indices_copy(C)
torch.ccol_indices_copy(Csc)
Q.type_as(Q.double())
Q.is_nonzero()
torch.tensor([1.]).to_sparse().item()
bool(torch.tensor([0.]).to_sparse())
torch.is_nonzero(torch.tensor([1.]).to_sparse())
torch.numel(Q)
torch.is_tensor(Q)
torch.is_floating_point(C)
Q.is_same_size(Q)
torch.isinf(Q)
torch.relu(Q-Q)
F.relu(Q)
torch.nn.ReLU()(Q)
F.dropout(Q,0.5,False)
F.linear(v,Q)
torch.nn.Linear(3,2)(Q).shape
torch.sin(Q,out=Q.clone())
Q.conj()
(Q*1j)
(Q*1j).real
(Q*1j).conj()
(Q*1j).H
torch.dot(v,v.to_sparse())
torch.empty_like(Q).shape
torch.nonzero(Q)
torch.where(Q>0,Q,Q)
torch.clamp(Q,0,1)
Q.clamp(min=0)
Q.exp()
Q.cos()
C.exp()
C.cos()
C.sin()
C.sqrt()
C.relu()
C.neg()
B.sin()
C.clone().sin_()
C.int().sin()
C.int().clone().sin_()
Q.int().clone().sin_()
C.isnan()
C.sgn()
C.angle()
C.round()
C.frac()
Q.frac()
Q.angle()
Q.positive()
C.positive()
torch.sparse_coo_tensor([[0]],[1+2j],(2,)).abs()
torch.sparse_coo_tensor([[0]],[1+2j],(2,)).angle()
torch.mm(Csc,Csc.t().to_sparse_csc()).layout
torch.mm(Csc.t(),Csc).layout
torch.mm(C.t(),C).layout
torch.mm(Csc,C.t().to_sparse_csc()).layout
Csc.to_sparse().is_coalesced()
C.to_sparse().is_coalesced()
T3.index_select(1,torch.tensor([1,0,1])).is_coalesced()
T3.index_select(0,torch.tensor([1,0])).is_coalesced()
T3.index_select(0,torch.tensor([1,0]))
T3.index_select(0,torch.tensor([0,1])).is_coalesced()
T3.select(1,0).is_coalesced()
T3.select(2,0).is_coalesced()
T3.narrow_copy(1,0,2).is_coalesced()
torch.cat([Q,Q],0).is_coalesced()
torch.cat([Q,Q],1).is_coalesced()
Q.unsqueeze(0).is_coalesced()
Q.t().is_coalesced()
T3.permute(0,1,2).is_coalesced()
torch.stack([Q,Q]).is_coalesced()
Sc.sum(0).is_coalesced()
Sc.sum(1).is_coalesced()
torch.mm(Q,Q).is_coalesced()
Sc.sparse_mask(Sc).is_coalesced()
D.sparse_mask(Sc).is_coalesced()
torch.sparse.softmax(U,0).is_coalesced()
torch.hspmm(Sc,D.t()).is_coalesced()
torch.smm(Sc,D.t()).is_coalesced()
torch.zeros_like(Sc).is_coalesced()
Sc.clone().is_coalesced()
Sc.to(torch.float64).is_coalesced()
Sc.detach().is_coalesced()
(Sc*Sc).is_coalesced()
(Sc*2).is_coalesced()
(Sc/2).is_coalesced()
(Sc*D).is_coalesced()
Sc.sin().is_coalesced()
(U+U).is_coalesced()
(Sc+Sc).is_coalesced()
(S+Sc).is_coalesced()
Sc.pow(2).is_coalesced()
D.to_sparse().is_coalesced()
torch.sparse.spdiags(torch.ones(2,3),torch.tensor([0,1]),(3,3)).is_coalesced()
torch.sparse_coo_tensor((2,3)).is_coalesced()
torch.sparse_coo_tensor([[0]],[1.],(3,)).is_coalesced()
torch.sparse_coo_tensor([[0]],[1.],(3,)).coalesce().is_coalesced()
D[None].expand(2,2,3).to_sparse_csr().to_sparse().is_coalesced()
Q.clone().zero_().is_coalesced()
H.sum(1).is_coalesced()
""".strip().split("\n")

# `R` notes a result, `O` trains an embedding with an optimizer and notes its weight and state.
PROGRAMS = """
x=Sc.clone().requires_grad_(); x.to_dense().sum().backward(); R(x.grad)
x=U.clone().requires_grad_(); x.to_dense().mul(D).sum().backward(); R(x.grad)
x=U.clone().requires_grad_(); (x.to_dense(masked_grad=False)*D).sum().backward(); R(x.grad)
d=D.clone().requires_grad_(); d.to_sparse().to_dense().mul(D).sum().backward(); R(d.grad)
d=D.clone().requires_grad_(); torch.sparse.sum(d.to_sparse()).backward(); R(d.grad)
x=Sc.clone().requires_grad_(); torch.sparse.sum(x).backward(); R(x.grad)
x=Sc.clone().requires_grad_(); torch.sparse.sum(x,0).to_dense().mul(v).sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); (x*2).to_dense().sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); (x*x).to_dense().sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); d=D.clone().requires_grad_(); (x*d).to_dense().sum().backward(); R(x.grad, d.grad)
x=Sc.clone().requires_grad_(); d=D.clone().requires_grad_(); (d*x).to_dense().sum().backward(); R(x.grad, d.grad)
x=Sc.clone().requires_grad_(); y=torch.sparse_coo_tensor([[0],[0]],[1.],(2,3)).requires_grad_(); (x+y).to_dense().mul(D+1).sum().backward(); R(x.grad, y.grad)
x=Sc.clone().requires_grad_(); y=Sc.clone().requires_grad_(); (x-2*y).to_dense().mul(D+1).sum().backward(); R(x.grad, y.grad)
x=Sc.clone().requires_grad_(); d=D.clone().requires_grad_(); (d+x).mul(D+1).sum().backward(); R(x.grad.to_dense() if x.grad.is_sparse else x.grad, d.grad)
x=Sc.clone().requires_grad_(); (x/2).to_dense().sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.values().sum().backward(); R(x.grad)
x=U.clone().requires_grad_(); x.coalesce().values().sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.neg().to_dense().sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.t().to_dense().mul(D.t()).sum().backward(); R(x.grad.to_dense())
x=Sc.clone().requires_grad_(); d=D.clone().requires_grad_(); torch.sparse.mm(x,d.t()).sum().backward(); R(x.grad, d.grad)
x=Sc.clone().requires_grad_(); d=D.clone().requires_grad_(); torch.mm(x,d.t()).sum().backward(); R(x.grad, d.grad)
x=Q.clone().requires_grad_(); d=D.clone().requires_grad_(); torch.mm(d,x).sum().backward(); R(x.grad, d.grad)
x=Q.clone().requires_grad_(); y=Q.clone().requires_grad_(); torch.sparse.mm(x,y).to_dense().sum().backward(); R(x.grad, y.grad)
x=Q.clone().requires_grad_(); y=Q.clone().requires_grad_(); torch.sparse.sum(torch.sparse.mm(x,y)).backward(); R(x.grad.to_dense(), y.grad.to_dense())
x=C.clone().requires_grad_(); d=D.clone().requires_grad_(); torch.sparse.mm(x,d.t()).sum().backward(); R(x.grad, d.grad)
x=C.clone().requires_grad_(); d=D.clone().requires_grad_(); torch.mm(x,d.t()).sum().backward(); R(x.grad, d.grad)
x=C.clone().requires_grad_(); d=D.clone().requires_grad_(); torch.sparse.mm(x,d.t(),'amax').sum().backward(); R(x.grad, d.grad)
x=C.clone().requires_grad_(); d=D.clone().requires_grad_(); torch.sparse.mm(x,d.t(),'mean').sum().backward(); R(x.grad, d.grad)
x=Sc.clone().requires_grad_(); d=D.clone().requires_grad_(); e=torch.ones(2,2).requires_grad_(); torch.sparse.addmm(e,x,d.t(),beta=2,alpha=3).sum().backward(); R(x.grad, d.grad, e.grad)
x=C.clone().requires_grad_(); d=D.clone().requires_grad_(); e=torch.ones(3,3).requires_grad_(); torch.sparse.sampled_addmm(x,d,e,beta=2,alpha=3).to_dense().sum().backward(); R(x.grad, d.grad, e.grad)
x=Sc.clone().requires_grad_(); torch.sparse.softmax(x,1).to_dense().mul(D).sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); torch.sparse.log_softmax(x,1).to_dense().mul(D).sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.sparse_mask(torch.sparse_coo_tensor([[0,1],[0,0]],[1.,1],(2,3)).coalesce()).to_dense().sum().backward(); R(x.grad.to_dense())
d=D.clone().requires_grad_(); d.sparse_mask(Sc).to_dense().sum().backward(); R(d.grad)
d=D.clone().requires_grad_(); torch.sparse.sum(d.sparse_mask(Sc)).backward(); R(d.grad)
w=v.clone().requires_grad_(); torch.sparse_coo_tensor(i,w,(2,3)).to_dense().mul(D).sum().backward(); R(w.grad)
w=v.clone().requires_grad_(); torch.sparse.mm(torch.sparse_coo_tensor(i,w,(2,3)),D.t()).sum().backward(); R(w.grad)
w=v.clone().requires_grad_(); torch.sparse_coo_tensor([[1,0,1],[0,2,0]],w,(2,3)).coalesce().to_dense().mul(D).sum().backward(); R(w.grad)
w=v.clone().requires_grad_(); torch.sparse_csr_tensor([0,1,3],[2,0,2],w,(2,3)).to_dense().mul(D).sum().backward(); R(w.grad)
x=C.clone().requires_grad_(); x.to_dense().mul(D).sum().backward(); R(x.grad)
x=C.clone().requires_grad_(); x.values().sum().backward(); R(x.grad)
x=C.clone().requires_grad_(); (x*2).to_dense().mul(D).sum().backward(); R(x.grad)
x=C.clone().requires_grad_(); x.sum().backward(); R(x.grad)
d=D.clone().requires_grad_(); d.to_sparse_csr().to_dense().mul(D).sum().backward(); R(d.grad)
d=D.clone().requires_grad_(); d.to_sparse_bsr((1,3)).to_dense().mul(D).sum().backward(); R(d.grad)
x=Sc.clone().requires_grad_(); x.to_sparse_csr().to_dense().mul(D).sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.abs().to_dense().mul(D).sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.pow(2).to_dense().mul(D).sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.double().to_dense().sum().backward(); R(x.grad)
x=Sc.clone().requires_grad_(); x.clone().to_dense().sum().backward(); R(x.grad)
x=T3.clone().requires_grad_(); e=torch.ones(2,3,2).requires_grad_(); torch.bmm(x,e).sum().backward(); R(x.grad,e.grad)
x=Q.clone().requires_grad_(); x.mv(v).sum().backward(); R(x.grad)
x=Q.clone().requires_grad_(); (x@v).sum().backward(); R(x.grad)
x=Q.clone().requires_grad_(); x.to_dense().sum().backward(); x.to_dense().sum().backward(); R(x.grad)
x=Q.clone().requires_grad_(); x.backward(Q); R(x.grad)
x=Q.clone().requires_grad_(); (x*2).backward(Q); R(x.grad)
x=Q.clone().requires_grad_(); R(torch.autograd.grad((x*2).to_dense().sum(),x))
x=Q.clone().requires_grad_(); x.add_(Q)
x=Q.clone().requires_grad_(); y=x*1; y.mul_(3); y.to_dense().sum().backward(); R(x.grad, y)
x=Q.clone().requires_grad_(); y=x*1; y.add_(Q); y.to_dense().sum().backward(); R(x.grad)
x=Q.clone().requires_grad_(); R(x.detach().requires_grad, x.is_leaf, (x*1).is_leaf, x.requires_grad, (x*2).grad_fn.name())
w=torch.ones(5,2).requires_grad_(); F.embedding(torch.tensor([[1,2],[1,4]]),w,sparse=True).sum().backward(); R(w.grad, w.grad.coalesce())
w=torch.ones(5,2).requires_grad_(); F.embedding(torch.tensor([1,2,1]),w,padding_idx=1,sparse=True).sum().backward(); R(w.grad)
w=torch.ones(5,2).requires_grad_(); F.embedding(torch.tensor([1,2,1]),w,sparse=True,scale_grad_by_freq=True).sum().backward(); R(w.grad)
w=torch.ones(5,2).requires_grad_(); o=F.embedding(torch.tensor([1,2,1]),w,sparse=True); R(o)
w=torch.ones(5,2).requires_grad_(); (F.embedding(torch.tensor([1,2,1]),w,sparse=True).sum()+w.sum()).backward(); R(w.grad)
w=torch.ones(5,2).requires_grad_(); (w.sum()+F.embedding(torch.tensor([1,2,1]),w,sparse=True).sum()).backward(); R(w.grad)
w=torch.ones(5,2).requires_grad_(); w.sum().backward(); F.embedding(torch.tensor([1,2,1]),w,sparse=True).sum().backward(); R(w.grad)
w=torch.ones(5,2).requires_grad_(); F.embedding(torch.tensor([1,2,1]),w,sparse=True).sum().backward(); w.sum().backward(); R(w.grad)
w=torch.ones(5,2).requires_grad_(); F.embedding(torch.tensor([1,2]),w,sparse=True).sum().backward(); F.embedding(torch.tensor([3]),w,sparse=True).sum().backward(); R(w.grad)
w=torch.ones(5,2).requires_grad_(); F.embedding_bag(torch.tensor([1,2,4,1]),w,torch.tensor([0,2]),mode='sum',sparse=True).sum().backward(); R(w.grad.coalesce())
w=torch.ones(5,2).requires_grad_(); F.embedding_bag(torch.tensor([1,2,4,1]),w,torch.tensor([0,2]),mode='mean',sparse=True).sum().backward(); R(w.grad.coalesce())
m=torch.nn.Embedding(4,2,sparse=True); m.weight.data.fill_(1.); m(torch.tensor([1,3])).sum().backward(); R(m.weight.grad, m)
m=torch.nn.Embedding(4,2,sparse=True); m(torch.tensor([1,3])).sum().backward(); m.zero_grad(); R(m.weight.grad)
m=torch.nn.Embedding(4,2,sparse=True); m(torch.tensor([1,3])).sum().backward(); m.zero_grad(set_to_none=False); R(m.weight.grad)
m=torch.nn.Embedding(4,2,sparse=True); m(torch.tensor([1,3])).sum().backward(); R(torch.nn.utils.clip_grad_norm_(m.parameters(),1.0), m.weight.grad.coalesce())
m=torch.nn.Embedding(4,2,sparse=True); m(torch.tensor([1,3,1])).sum().backward(); R(torch.nn.utils.clip_grad_value_(m.parameters(),.5), m.weight.grad)
O('SGD',lr=.1)
O('SGD',lr=.1,weight_decay=.1)
O('Adagrad',lr=.1)
O('Adagrad',lr=.1,weight_decay=.1)
O('Adagrad',lr=.1,lr_decay=.5,initial_accumulator_value=.1)
O('SparseAdam',lr=.1)
O('SparseAdam',lr=.1,betas=(.5,.6),eps=1e-3,maximize=True)
O('Adam',lr=.1)
O('AdamW',lr=.1)
O('NAdam',lr=.1)
O('RAdam',lr=.1)
O('Adamax',lr=.1)
O('RMSprop',lr=.1)
O('Adadelta',lr=.1)
O('ASGD',lr=.1)
O('Rprop',lr=.1)
torch.optim.SparseAdam([torch.ones(2)],lr=-1)
R(torch.optim.SparseAdam([torch.ones(2)]))
torch.optim.SparseAdam([Q])
""".strip().split("\n")


def of_dtype(torch: Any, dtype: str) -> dict[str, Any]:
    """Matrices of one dtype: with entries that meet (A, B), coalesced (Ac, Bc), hybrid (Hy), CSR (C), strided (d)."""
    rng = random.Random(0)
    kind = getattr(torch, dtype)
    places = [[[rng.randrange(4) for _ in range(n)] for _ in range(2)] for n in (6, 5)]
    values = [[float(rng.randrange(0, 4)) for _ in range(n)] for n in (6, 5)]
    d = torch.tensor([[float(rng.randrange(0, 4)) for _ in range(4)] for _ in range(4)]).to(kind)
    a, b = (torch.sparse_coo_tensor(p, torch.tensor(v).to(kind), (4, 4)) for p, v in zip(places, values, strict=True))
    return {
        "m": torch, "A": a, "B": b, "Ac": a.coalesce(), "Bc": b.coalesce(), "d": d, "v": d[0], "C": d.to_sparse_csr(), "Hy": d.to_sparse(1),
        "S": d.to_sparse(),
    }  # fmt: skip


OF_ANY_DTYPE = """
A.coalesce()
A.to_dense()
A+B
Ac+Bc
Ac-Bc
Ac*Bc
A*2
A*2.5
A*d
d+A
Ac/2
Ac//2
A.neg()
A.abs()
A.sin()
A.sqrt()
A.sign()
A.sum()
A.sum(0)
m.sparse.sum(A,1)
A@d
d@A
Ac@Bc
A@v
m.sparse.mm(A,d)
m.sparse.addmm(d,A,d)
m.addmm(d,A,d,beta=2,alpha=3)
m.smm(A,d)
m.hspmm(A,d)
C@d
d@C
C@C
C+C
C*C
C*2
d+C
C+d
C@v
C.sum()
C.sum(0,keepdim=True)
C.to_sparse_csc()
C.to_sparse_bsr((2,2))
C.sin()
C.neg()
m.sparse.sampled_addmm(C,d,d)
m.sparse.mm(C,d,'sum')
m.sparse.mm(C,d,'mean')
m.sparse.mm(C,d,'amax')
m.sparse.softmax(A,1)
m.sparse.log_softmax(A,0)
m.sparse.softmax(Hy,0)
A.norm()
A.norm(1)
A.any()
A.t()
A[1]
A.index_select(0,m.tensor([3,0,0]))
m.cat([A,B])
A.pow(2)
A**2
A.to(m.float64)
A.to(m.int32)
A.bool()
A.isnan()
d.sparse_mask(Ac)
Ac.sparse_mask(Bc)
Hy+Hy
Hy*2
Hy.sum(0)
Hy.sum(1)
Hy*Hy
Hy@d
d+Hy
Hy*d
d.to_sparse_bsr((2,2)).to_dense()
d.to_sparse_csc()@d
m.zeros_like(A)
A.clone().mul_(2)
A.clone().add_(B)
d.clone().add_(A)
Ac.clone().sin_()
Ac.clone().div_(2)
m.bmm(m.stack([S,S]),m.stack([d,d]))
Ac.round()
Ac.floor()
Ac.nan_to_num()
Ac.conj()
Ac.real
Ac.H
A.is_coalesced()
A.unsqueeze(1)
S.permute(1,0)
Ac.narrow_copy(0,1,2)
m.sparse.spdiags(d,m.tensor([0,1,-1,2]),(4,4))
""".strip().split("\n")
