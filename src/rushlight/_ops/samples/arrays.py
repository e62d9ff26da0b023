"""Calls of the operators over dims: reductions, products, views, shapes, indexing, layers."""

from __future__ import annotations

from rushlight._ops.samples import (
    Call,
    Draw,
    give,
    index,
    linalg,  # noqa: F401  (a table of its own)
)
from rushlight._types.dtype import BOOL, COMPLEX128, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, INT64, UINT8

__all__: list[str] = []

X = Draw(3, 4)
CUBE = Draw(2, 3, 4)

# ***** reductions and scans *****

for _name in ("sum", "nansum", "mean", "nanmean", "amax", "amin"):
    give(_name, Call(CUBE), Call(CUBE, (1,)), Call(CUBE, (0, -1), True), Call(Draw()))
give(
    "sum",
    Call(CUBE),
    Call(CUBE, (0, 2), True),
    Call(Draw(4, dtype=BOOL)),
    Call(Draw(0, 3), (0,)),
    Call(Draw(3, 4, dtype=INT64), (1,), dtype=FLOAT64),
)
give(
    "prod", Call(X), Call(X, 1), Call(Draw(4, values=[1.0, 0.0, 2.0, 3.0])), Call(Draw(4, values=[1.0, 0.0, 2.0, 0.0]))
)
give("count_nonzero", Call(Draw(3, 4, dtype=INT64)), Call(X, (0,)))
give("trace", Call(X))
for _name in ("all", "any"):
    give(_name, Call(Draw(3, 4, dtype=BOOL)), Call(X, (0,), True), Call(Draw(0)))
for _name in ("argmax", "argmin"):
    give(_name, Call(X), Call(CUBE, 1), Call(CUBE, -1, True), Call(Draw()))
for _name in ("max_dim", "min_dim"):
    give(_name, Call(CUBE, 1), Call(X, -1, True), Call(Draw(), 0))
for _name in ("max_all", "min_all", "median_all", "nanmedian_all"):
    give(_name, Call(X), Call(Draw(3, dtype=INT64)))
give("median_dim", Call(CUBE, 1), Call(X, 0, True))
give("aminmax", Call(X), Call(X, dim=0, keepdim=True))
for _name in ("var", "std", "var_mean", "std_mean"):
    give(
        _name, Call(X), Call(CUBE, (0, 2), False, True), Call(X, (1,), correction=2.0), Call(Draw(5, dtype=COMPLEX128))
    )
give(
    "linalg_vector_norm",
    Call(X),
    *[Call(X, p, (1,)) for p in (1, 0, 3.5, float("inf"), -float("inf"), 1.5)],
    Call(X, 2, (0,), True),
)
give("dist", Call(X, Draw(4)), Call(X, Draw(3, 4), 1))
give(
    "pdist_core",
    Call(X, 2.0),
    Call(Draw(5, 4), 1.0),
    Call(Draw(4, 3), 3.0),
    Call(Draw(6, 2), float("inf")),
    Call(Draw(1, 2), 2.0),
)
give("cdist_by_product", Call(X, Draw(2, 4)), Call(Draw(2, 3, 4), Draw(2, 2, 4)))
give("cdist_core", Call(X, Draw(2, 4), 2.0), Call(X, Draw(5, 4), 1.0), Call(Draw(2, 3, 4), Draw(2, 2, 4), 3.0))
give("logsumexp", Call(X, (1,)), Call(CUBE, (0, 2), True))
for _name in ("cumsum", "cumprod"):
    give(_name, Call(X, 1), Call(CUBE, 0), Call(Draw(3, dtype=INT64), 0), Call(Draw(), 0))
for _name in ("cummax", "cummin"):
    give(_name, Call(X, 1), Call(CUBE, 0))
give("logcumsumexp", Call(X, 1), Call(CUBE, 1))
give("diff", Call(X), Call(X, 2, 1), Call(X, 1, 0, Draw(1, 4), Draw(2, 4)))

# ***** normalisation, losses *****

for _name in ("softmax", "log_softmax"):
    give(_name, Call(X, 1), Call(CUBE, 1), Call(Draw(), 0))
give("layer_norm", Call(X, (4,)), Call(CUBE, (3, 4), Draw(3, 4), Draw(3, 4)), Call(X, (4,), Draw(4), None, 0.1))
give("rms_norm", Call(X, (4,)), Call(CUBE, (3, 4), Draw(3, 4), 0.1))
give("group_norm", Call(Draw(2, 6, 5), 3), Call(Draw(2, 6, 2, 2), 2, Draw(6), Draw(6)))
give("batch_norm_train", Call(Draw(4, 3, 2), Draw(3), Draw(3), 1e-5), Call(Draw(5, 2), None, None, 1e-5))
give("batch_norm_eval", Call(Draw(4, 3, 2), Draw(3), Draw(3, low=0.5, high=2), Draw(3), Draw(3), 1e-5))
give("instance_norm_core", Call(Draw(2, 3, 5), Draw(3), Draw(3), 1e-5))
give("normalize", Call(X), Call(CUBE, 1.0, 2))
give("local_response_norm", Call(Draw(2, 5, 3), 3))
for _name in ("mse_loss", "l1_loss", "smooth_l1_loss", "soft_margin_loss"):
    give(_name, *[Call(X, Draw(3, 4), reduction=r) for r in ("mean", "sum", "none")])
give("huber_loss", Call(X, Draw(3, 4)), Call(X, Draw(3, 4), "none", 0.4))
CHANCE = Draw(3, 4, low=0.05, high=0.95)
give("nll_loss", Call(X, index(3, below=4)), Call(Draw(2, 3, 4, 2), index(2, 4, 2, below=3), Draw(3, low=0.5, high=2), ignore_index=1),
     Call(Draw(4), index(below=4), reduction="sum"), Call(X, index(3, below=4), reduction="none"))  # fmt: skip
give("cross_entropy", Call(X, index(3, below=4)), Call(X, index(3, below=4), label_smoothing=0.1), Call(X, CHANCE),
     Call(Draw(2, 3, 4), index(2, 4, below=3), Draw(3, low=0.5, high=2), ignore_index=1, label_smoothing=0.2),
     Call(X, CHANCE, Draw(4, low=0.5, high=2), reduction="sum", label_smoothing=0.1), Call(X, index(3, below=4), reduction="none"))  # fmt: skip
give(
    "binary_cross_entropy",
    Call(CHANCE, Draw(3, 4, low=0, high=1)),
    Call(CHANCE, Draw(3, 4, low=0, high=1), Draw(4), reduction="none"),
)
give(
    "binary_cross_entropy_with_logits",
    Call(X, CHANCE),
    Call(X, CHANCE, Draw(4), pos_weight=Draw(4, low=0.5, high=2), reduction="sum"),
)
give("multilabel_soft_margin_loss", Call(X, Draw(3, 4, low=0, high=1)))
give("kl_div", Call(Draw(3, 4, low=-3, high=-0.1), CHANCE), Call(X, Draw(3, 4), log_target=True, reduction="batchmean"))
give(
    "poisson_nll_loss",
    Call(X, Draw(3, 4, low=0.5, high=6)),
    Call(Draw(3, 4, low=0.2, high=3), Draw(3, 4, low=1.5, high=6), False, True),
)
give("gaussian_nll_loss", Call(X, Draw(3, 4), Draw(3, 4, low=0.3, high=2)), Call(X, Draw(3, 4), 0.7, True))
give(
    "ctc_step",
    Call(Draw(2, 5), Draw(2, 5), Draw(2, 5, dtype=BOOL)),
    Call(Draw(3, 1), Draw(3, 1), Draw(3, 1, dtype=BOOL)),
)
give("margin_ranking_loss", Call(Draw(4), Draw(4), Draw(4, values=[1.0, -1.0, 1.0, -1.0]), 0.3))
give("hinge_embedding_loss", Call(Draw(4), Draw(4, values=[1.0, -1.0, 1.0, -1.0])))
give("cosine_similarity", Call(X, Draw(3, 4)), Call(CUBE, Draw(3, 4), 2))
give("cosine_embedding_loss", Call(Draw(2, 4), Draw(2, 4), Draw(2, values=[1.0, -1.0]), 0.1))
give("pairwise_distance", Call(X, Draw(3, 4)), Call(X, Draw(3, 4), 1.0, 1e-6, True))
give("triplet_margin_loss", Call(X, Draw(3, 4), Draw(3, 4)), Call(X, Draw(3, 4), Draw(3, 4), swap=True))
give("multi_margin_loss", Call(X, index(3, below=4)), Call(X, index(3, below=4), 2, 0.5, Draw(4, low=0.5, high=2)))
give("multilabel_margin_loss", Call(X, Draw(3, 4, dtype=INT64, values=[0, 2, -1, 1, 3, -1, 0, 0, 1, 2, 3, -1])))

# ***** products *****

give("mm", Call(X, Draw(4, 5)), Call(Draw(3, 4, dtype=INT64), Draw(4, 2, dtype=INT64)), Call(Draw(0, 4), Draw(4, 5)))
give(
    "_int_mm",
    Call(Draw(3, 40, dtype=INT8), Draw(40, 2, dtype=INT8)),
    Call(Draw(3, 4, dtype=UINT8), Draw(4, 5, dtype=INT8)),
)
give(
    "scaled_product",
    Call(X, Draw(4, 5), Draw(1), Draw(1), None, FLOAT64),
    Call(X, Draw(4, 5), Draw(3, 1), Draw(1, 5), Draw(5), FLOAT64),
)
_ENDS = Draw(2, dtype=INT32, values=[1, 3])
give(
    "grouped_product",
    Call(Draw(4, 3), Draw(2, 3, 5), _ENDS),
    Call(Draw(2, 3, 4), Draw(4, 5), _ENDS),
    Call(Draw(3, 4), Draw(4, 5), _ENDS),
)
give(
    "scaled_grouped_product",
    Call(Draw(4, 3), Draw(2, 3, 5), _ENDS, Draw(4), Draw(2, 5), FLOAT64),
    Call(Draw(2, 3, 4), Draw(4, 5), _ENDS, Draw(2, 3), Draw(5), FLOAT64),
    Call(Draw(3, 4), Draw(4, 5), _ENDS, Draw(2, 3), Draw(2, 5), FLOAT64),
)
give("bmm", Call(CUBE, Draw(2, 4, 5)))
give("mv", Call(X, Draw(4)))
give("dot", Call(Draw(4), Draw(4)))
give("vdot", Call(Draw(4, dtype=COMPLEX128), Draw(4, dtype=COMPLEX128)))
give("matmul", *[Call(a, b) for a, b in (
    (Draw(4), Draw(4)), (X, Draw(4)), (Draw(3), X), (X, Draw(4, 2)), (CUBE, Draw(4, 2)), (Draw(5, 1, 3, 4), Draw(2, 4, 2)),
    (CUBE, Draw(4)), (Draw(3), Draw(2, 3, 4)), (X, Draw(2, 4, 3)))])  # fmt: skip
give(
    "addmm",
    Call(Draw(5), X, Draw(4, 5)),
    Call(Draw(3, 5), X, Draw(4, 5), beta=0.5, alpha=2.0),
    Call(Draw(5), X, Draw(4, 5), beta=0),
)
give("addmv", Call(Draw(3), X, Draw(4), alpha=2))
give("addr", Call(X, Draw(3), Draw(4), beta=0.5))
give("baddbmm", Call(Draw(2, 3, 5), CUBE, Draw(2, 4, 5), beta=0.5))
give("addbmm", Call(Draw(3, 5), CUBE, Draw(2, 4, 5)))
give(
    "linear", Call(X, Draw(5, 4), Draw(5)), Call(CUBE, Draw(5, 4)), Call(Draw(4), Draw(5, 4), Draw(5)), Call(X, Draw(4))
)
give("outer", Call(Draw(3), Draw(4)))
give("tensordot_core", Call(CUBE, Draw(4, 3, 5), (1, 2), (1, 0)))
give("tensordot", Call(CUBE, Draw(3, 4, 5)), Call(X, CUBE, ((1,), (2,))))
give("inner", Call(X, CUBE), Call(Draw(4), Draw(4)), Call(X, Draw()))
give("kron", Call(X, Draw(2, 2)), Call(Draw(2), X))
give("bilinear", Call(Draw(5, 3), Draw(5, 4), Draw(2, 3, 4), Draw(2)))
give("einsum_core", Call("bij,bjk->bik", [CUBE, Draw(2, 4, 5)]), Call("ii->i", [Draw(3, 3)]), Call("ij->", [X]), Call("...ij,jk", [CUBE, Draw(4, 5)]),
     Call("i,j,k->kij", [Draw(2), Draw(3), Draw(4)]), Call("ij,ij->ij", [X, Draw(3, 4)]), Call("bhqd,bhkd->bhqk", [Draw(2, 2, 3, 4), Draw(2, 2, 5, 4)]))  # fmt: skip

# ***** views *****

give("view", Call(X, (2, 6)), Call(X, (-1,)))
give("expand", Call(Draw(3, 1), (2, 3, 4)), Call(Draw(3, 1), (-1, 4)))
give("broadcast_to", Call(Draw(3, 1), (2, 3, 4)))
give("squeeze", Call(Draw(1, 3, 1)), Call(Draw(1, 3, 1), (0,)), Call(Draw(1, 3, 1), (0, 1)))
give("unsqueeze", Call(X, 0), Call(X, -1))
give("unflatten", Call(Draw(3, 6), 1, (2, -1)))
give("permute", Call(CUBE, (2, 0, 1)))
give("transpose", Call(CUBE, 0, -1))
give("swapaxes", Call(CUBE, 0, 1))
give("t", Call(X), Call(Draw(3)))
give("movedim", Call(CUBE, (0,), (2,)), Call(CUBE, (0, 1), (2, 0)))
give("select", Call(CUBE, 1, -1))
give("slice", Call(Draw(7), 0, 1, None, 2), Call(X, 1, -3, 3))
give("narrow", Call(X, 1, 1, 2))
give("diagonal", Call(X), Call(X, 1), Call(CUBE, -1, 2, 0))
give("unfold", Call(Draw(7), 0, 3, 2), Call(X, 1, 2, 1), Call(Draw(3, 8), 1, 3, 3))
for _name in ("split", "split_with_sizes"):
    give(_name, Call(Draw(5, 2), (2, 3)))
give("split", Call(Draw(5, 2), 2), Call(Draw(5, 2), (2, 3)), Call(X, 3, 1))
give("chunk", Call(Draw(5, 2), 3), Call(X, 2, 1))
give("tensor_split", Call(Draw(7, 2), 3), Call(Draw(7, 2), (2, 5)))
give("hsplit", Call(X, 2))
give("vsplit", Call(Draw(4, 2), 2))
give("dsplit", Call(CUBE, 2))
give("unbind", Call(X), Call(CUBE, 1))
give("basic_index", Call(CUBE, (("i", 1), ("s", 0, 3, 2), ("n",), ("s", None, None, 1))))

# ***** shapes *****

give("cat", Call([X, Draw(2, 4)]), Call([X, Draw(3, 1)], 1), Call([X, Draw(0)]))
give("stack", Call([X, Draw(3, 4)]), Call([X, Draw(3, 4)], -1))
for _name in ("hstack", "vstack", "dstack", "column_stack"):
    give(_name, Call([X, Draw(3, 4)]), Call([Draw(3), Draw(3)]))
give("block_diag_core", Call([X, Draw(2), Draw()]))
give("flip", Call(CUBE, (0, 2)))
give("fliplr", Call(X))
give("flipud", Call(X))
give("rot90", Call(X), Call(CUBE, 3, (1, 2)))
give("roll", Call(X, (1,)), Call(X, (1, -2), (0, 1)), Call(Draw(3, 4, 5), (1, -2, 7, 1), (0, 2, 1, -1)))
give("repeat", Call(X, (2, 1)), Call(X, (2, 1, 3)))
give("tile", Call(X, (2,)))
give("repeat_interleave_core", Call(X, 2, None), Call(X, 3, 1))
give(
    "pad",
    Call(X, (1, 2)),
    Call(X, (1, -1, 0, 2), value=1.5),
    *[Call(CUBE, (2, 1), mode) for mode in ("reflect", "replicate", "circular")],
)
give("constant_pad_nd", Call(X, (1, 2), 3.0))
give("tril", Call(X), Call(CUBE, 1))
give("triu", Call(X), Call(CUBE, -1))
give("diag_embed", Call(X), Call(X, 1, 0, 2))
give("diagflat", Call(X, 1))
give("diag", Call(Draw(3), 1), Call(X))
give("diagonal_scatter", Call(X, Draw(3), 1))
give("select_scatter", Call(X, Draw(4), 0, 1))
give("slice_scatter", Call(X, Draw(3, 2), 1, 0, 4, 2))
give("pixel_shuffle", Call(Draw(1, 8, 2, 3), 2))
give("pixel_unshuffle", Call(Draw(1, 2, 4, 6), 2))
give("channel_shuffle", Call(Draw(1, 6, 2, 2), 3))

# ***** indices that are data *****

give("index", Call(X, (0,), [index(5, below=3)]), Call(CUBE, (0, 2), [index(2, 2, below=2), index(2, below=4)]))
give(
    "index_put_core",
    Call(X, (0,), [Draw(2, dtype=INT64, values=[2, 0])], Draw(4), False),
    Call(X, (1,), [index(5, below=4)], Draw(3, 5), True),
)
give("index_select", Call(X, 1, index(5, below=4)))
give("gather", Call(X, 1, index(3, 2, below=4)), Call(X, 0, index(2, 4, below=3)))
PLACES = Draw(2, 3, dtype=INT64, values=[0, 1, 2, 1, 2, 0])
give("scatter", Call(Draw(3, 4), 0, PLACES, Draw(2, 4)), Call(Draw(3, 4), 0, PLACES, value=2.0))
give("scatter_add", Call(Draw(3, 4), 0, index(5, 4, below=3), Draw(5, 4)))
give("masked_scatter_core", Call(X, Draw(3, 4, dtype=BOOL), Draw(12)), Call(X, Draw(4, dtype=BOOL), Draw(4, 3)))
give("scatter_reduce", *[Call(Draw(3, 4), 0, index(5, 4, below=3), Draw(5, 4, low=0.3, high=2), how, include_self=own)
                         for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)])  # fmt: skip
give("as_strided_scatter_core", Call(X, Draw(4, dtype=INT64, values=[1, 2, 5, 6]), Draw(2, 2)))
give("index_add", Call(X, 0, index(5, below=3), Draw(5, 4)), Call(X, 1, index(2, below=4), Draw(3, 2), alpha=0.5))
give("index_copy", Call(X, 0, Draw(2, dtype=INT64, values=[2, 0]), Draw(2, 4)))
give("index_fill", Call(X, 1, index(2, below=4), 3.0), Call(X, 0, index(2, below=3), Draw()))
give("take", Call(X, index(5, below=12)))
give("put", Call(X, Draw(3, dtype=INT64, values=[3, 0, 7]), Draw(3)), Call(X, index(5, below=12), Draw(5), True))
give("take_along_dim", Call(X, index(3, 2, below=4), 1), Call(X, index(5, below=12)))
give(
    "embedding",
    Call(index(2, 3, below=5), Draw(5, 4)),
    Call(index(6, below=5), Draw(5, 4), 2),
    Call(index(6, below=5), Draw(5, 4), None, None, 2.0, True),
)
give(
    "embedding_bag_core",
    *[Call(index(2, 3, below=5), Draw(5, 4), None, None, None, 3, -1, mode) for mode in ("sum", "mean", "max")],
    Call(index(2, 3, below=5), Draw(5, 4), None, None, Draw(2, 3), 3, 2, "sum"),
    *[
        Call(
            index(6, below=5),
            Draw(5, 4),
            Draw(3, dtype=INT64, values=[0, 2, 2]),
            Draw(3, dtype=INT64, values=[2, 2, 6]),
            None,
            4,
            1,
            mode,
        )
        for mode in ("sum", "mean", "max")
    ],
)
give("one_hot_core", Call(index(4, below=3), 3))
give("sort", Call(X), Call(X, 0, True), Call(Draw()))
give("argsort", Call(X, 0))
give("msort", Call(X))
give("topk", Call(X, 2), Call(X, 2, 0, False))
give("kthvalue", Call(X, 2), Call(X, 1, 0, True))
give(
    "bucketize_core",
    Call(X, Draw(4, values=[-1.0, 0.0, 0.5, 1.0]), False),
    Call(X, Draw(4, values=[-1.0, 0.0, 0.5, 1.0]), True),
)

# ***** layers *****

give("conv1d", Call(Draw(2, 3, 7), Draw(4, 3, 3), Draw(4), 2, 1), Call(Draw(3, 7), Draw(4, 3, 2), None, 1, "same"))
give(
    "conv2d",
    Call(Draw(2, 4, 5, 6), Draw(6, 2, 3, 2), Draw(6), (2, 1), (1, 0), 1, 2),
    Call(Draw(1, 2, 4, 4), Draw(3, 2, 2, 2), None, 1, "valid"),
)
give("conv3d", Call(Draw(1, 2, 3, 4, 3), Draw(2, 2, 2, 2, 2), Draw(2)))
give("conv_transpose1d", Call(Draw(2, 3, 4), Draw(3, 2, 3), Draw(2), 2, 1, 1))
give("conv_transpose2d", Call(Draw(1, 4, 3, 3), Draw(4, 2, 2, 3), None, 2, 1, 1, 2, 1))
give("conv_transpose3d", Call(Draw(1, 2, 2, 2, 2), Draw(2, 1, 2, 2, 2)))
give("im2col", Call(Draw(1, 2, 4, 5), (2, 3), 1, 1, 2), Call(Draw(2, 2, 5, 7), (2, 3), 1, 0, (2, 3)))
give(
    "col2im",
    Call(Draw(1, 8, 9), (4, 4), (2, 2)),
    Call(Draw(4, 9), (4, 4), (2, 2), 1, 0, 1),
    Call(Draw(2, 12, 6), (5, 8), (2, 3), 1, (0, 1), (2, 3)),
)
for _n, _shape in ((1, (2, 3, 9)), (2, (2, 2, 7, 6)), (3, (1, 2, 4, 5, 4))):
    for _kind in ("_with_indices", "_values"):
        give(
            f"max_pool{_n}d{_kind}",
            Call(Draw(*_shape), 2),
            Call(Draw(*_shape), 3, 2, 1, 1, True),
            Call(Draw(*_shape[1:]), 2, 1),
        )
    give(
        f"avg_pool{_n}d",
        Call(Draw(*_shape), 2),
        Call(Draw(*_shape), 3, 2, 1, True, False),
        Call(Draw(*_shape[1:]), 3, 1),
    )
    give(f"adaptive_avg_pool{_n}d", Call(Draw(*_shape), (1,) * _n), Call(Draw(*_shape), (3,) * _n))
    give(f"adaptive_max_pool{_n}d_with_indices", Call(Draw(*_shape), (1,) * _n), Call(Draw(*_shape), (3,) * _n))
give("lp_pool_core", Call(Draw(1, 2, 6, 6, low=0.2, high=2), 2.0, (2, 3), (2, 2), False))
Q = Draw(2, 2, 3, 4)
give("sdpa_core", Call(Q, Draw(2, 2, 5, 4), Draw(2, 2, 5, 6)), Call(Q, Draw(2, 2, 3, 4), Draw(2, 2, 3, 4), None, True),
     Call(Q, Draw(2, 2, 5, 4), Draw(2, 2, 5, 4), Draw(3, 5)),
     Call(Draw(1, 4, 3, 4), Draw(1, 2, 3, 4), Draw(1, 2, 3, 4), None, False, 0.3, True))  # fmt: skip
give(
    "sdpa_with_norm",
    Call(Q, Draw(2, 2, 5, 4), Draw(2, 2, 5, 6)),
    Call(Q, Draw(2, 2, 3, 4), Draw(2, 2, 3, 4), True, 0.3),
    Call(Q, Draw(2, 2, 3, 4), Draw(2, 2, 3, 4), True, 0.3, Draw(3, 3)),
)
give(
    "sdpa_grad",
    Call(Draw(2, 2, 3, 6), Q, Draw(2, 2, 5, 4), Draw(2, 2, 5, 6), Draw(2, 2, 3, low=1, high=2), Draw(2, 2, 3)),
    Call(
        Draw(2, 2, 3, 6), Q, Draw(2, 2, 5, 4), Draw(2, 2, 5, 6), Draw(2, 2, 3, low=1, high=2), Draw(2, 2, 3), attn_mask=Draw(3, 5),
    ),
)  # fmt: skip
STARTS = Draw(3, dtype=INT32, values=[0, 2, 5])
RAGGED = Draw(5, 4, 3), Draw(5, 2, 3), Draw(5, 2, 2), STARTS, STARTS
give(
    "ragged_attention",
    Call(*RAGGED, None, 3, 3, 0.5),
    Call(*RAGGED, None, 3, 3, 0.5, 1, 0),
    Call(*RAGGED, Draw(2, dtype=INT32, values=[1, 3]), 3, 3, 0.5),
)
PAGES = Draw(5, 4, 3), Draw(3, 2, 2, 3), Draw(3, 2, 2, 2), STARTS
give(
    "paged_attention",
    Call(*PAGES, Draw(2, dtype=INT32, values=[2, 3]), Draw(2, 2, dtype=INT32, values=[1, 0, 2, 0]), 3, 3, 0.5),
)
give("dropout_core", Call(X, Draw(3, 4, dtype=BOOL), 2.0))

# ***** from nothing *****

give("arange_core", Call(1, 2, 5, INT64), Call(0.5, 0.25, 4, FLOAT64))
give(
    "linspace_core",
    Call(0.0, 1.0, 5, FLOAT64), Call(0.1, 0.7, 6, FLOAT32), Call(0.1, 0.7, 6, FLOAT16), Call(0j, 1 + 1j, 3, COMPLEX128), Call(2, 9, 4, INT64),
    Call(1.0, 2.0, 1, FLOAT64),
)  # fmt: skip
give("logspace_core", Call(0.0, 2.0, 3, 10.0, FLOAT64))
give("eye_core", Call(3, 4, FLOAT64), Call(2, 2, BOOL))
give("tril_indices_core", Call(3, 4, 1, INT64), Call(5, 3, -2, INT32), Call(2, 2, -4, INT64))
give("triu_indices_core", Call(3, 4, 1, INT64))
give("cosine_window_core", Call(6, True, (0.5, 0.5), FLOAT64))
give("bartlett_window_core", Call(6, False, FLOAT64))

# ***** indices *****

_IMAGE, _GRID = Draw(1, 2, 3, 4), Draw(1, 2, 2, 2, low=-1.1, high=1.1)
give(
    "grid_sample",
    *[Call(_IMAGE, _GRID, mode, padding, align_corners=align) for mode, padding, align in (
        ("bilinear", "zeros", False), ("bilinear", "reflection", True), ("bicubic", "border", False), ("nearest", "reflection", False))],
    Call(Draw(1, 1, 2, 3, 2), Draw(1, 2, 1, 2, 3, low=-1.1, high=1.1), align_corners=False),
)  # fmt: skip
_PICTURE = Draw(1, 2, 5, 4)
give(
    "upsample",
    Call(_PICTURE, (3, 6), (0, 0), 5 / 3, 4 / 6, 1.0, "nearest", False, False),
    Call(_PICTURE, (3, 6), (0, 0), 5 / 3, 4 / 6, 1.0, "linear", False, False),
    Call(_PICTURE, (7, 3), (0, 0), 4 / 6, 3 / 2, 1.0, "bicubic", True, False),
    Call(_PICTURE, (2, 3), (7, 5), 2.5, 4 / 3, 1.0, "linear", False, True),
    Call(_PICTURE, (2, 5), (11, 5), 2.5, 4 / 5, 1.0, "bicubic", False, True),
    Call(Draw(2, 1, 6), (4,), (0,), 1.5, 1.0, 1.0, "nearest-exact", False, False),
)
give("grid_sampler", Call(_IMAGE, _GRID, 0, 1, True))
give("grid_sampler_2d", Call(_IMAGE, _GRID, 2, 0, True))
give("grid_sampler_3d", Call(Draw(1, 1, 2, 3, 2), Draw(1, 2, 1, 2, 3, low=-1.1, high=1.1), 0, 1, False))
give("affine_grid", Call(Draw(2, 2, 3), (2, 3, 4, 5), False))
give("affine_grid_generator", Call(Draw(2, 2, 3), (2, 3, 4, 5), True), Call(Draw(1, 3, 4), (1, 1, 2, 3, 1), False))
for _n in (2, 3):
    give(
        f"fractional_max_pool{_n}d_core",
        Call(Draw(1, 2, *(5, 6, 4)[-_n:]), 2, (3, 2, 2)[-_n:], Draw(1, 2, _n, low=0.05, high=0.95)),
        Call(Draw(2, *(4, 4, 5)[-_n:]), (1, 2, 3)[-_n:], 2, Draw(1, 2, _n, low=0.05, high=0.95)),
    )

# ***** segments *****

give(
    "segment_reduce_core",
    *[
        Call(Draw(6, 2), Draw(4, dtype=INT64, values=[0, 2, 3, 6]), name, 0, initial)
        for name in ("sum", "mean", "prod", "max", "min")
        for initial in (None, 0.5)
    ],
    Call(Draw(2, 5), Draw(2, 3, dtype=INT64, values=[0, 1, 5, 1, 3, 4]), "sum", 1, None),
)
give(
    "hash_tensor",
    Call(X),
    Call(Draw(3, 4, dtype=INT64), (1,), keepdim=True),
    Call(Draw(4, dtype=BOOL), 0),
    Call(Draw()),
)
give("conv_tbc", Call(Draw(5, 2, 3), Draw(2, 3, 4), Draw(4), 1))

# ***** Fourier transforms *****

_WAVES = Draw(2, 3, 4, dtype=COMPLEX128)
give(
    "fft_c2c",
    Call(_WAVES, (2,), False),
    Call(_WAVES, (0, 2), True, "mean"),
    Call(Draw(5, dtype=COMPLEX128), (0,), False, "ortho"),
)
give("fft_r2c", Call(Draw(2, 3, 5), (2,)), Call(Draw(2, 3, 4), (0, 1), "ortho"))
give("fft_c2r", Call(_WAVES, (2,), 7), Call(_WAVES, (0, 1), 5, "mean"))

# ***** products of quantized numbers *****

BYTES = Draw(3, 8, dtype=UINT8, low=0, high=200)
PER_COLUMN = (Draw(4, dtype=INT32, low=-50, high=50), Draw(4, dtype=FLOAT32, low=0.01, high=0.02))
give(
    "quantized_linear",
    Call(BYTES, Draw(4, 8, dtype=INT8, low=-100, high=100), *PER_COLUMN, Draw(4, dtype=FLOAT32), None, 3),
    Call(BYTES, Draw(4, 8, dtype=INT8), *PER_COLUMN, None, Draw(4, dtype=INT32), 3, result="int8", relu=True),
)
give(
    "quantized_linear_dynamic",
    Call(Draw(3, 8, dtype=FLOAT32), Draw(4, 8, dtype=INT8), *PER_COLUMN, Draw(4, dtype=FLOAT32), None, relu=True),
    Call(Draw(3, 8, dtype=FLOAT32), Draw(4, 8, dtype=INT8), *PER_COLUMN, None, Draw(4, dtype=INT32), reduce_range=True),
)
IMAGE_BYTES = Draw(2, 4, 5, 6, dtype=UINT8, low=0, high=200)
give(
    "quantized_conv",
    Call(IMAGE_BYTES, Draw(4, 4, 3, 3, dtype=INT8), *PER_COLUMN, None, None, 5, 7, (1, 2), (1, 1), (1, 1), 1),
    Call(IMAGE_BYTES, Draw(4, 2, 3, 2, dtype=INT8), *PER_COLUMN, None, None, 5, 7, (1, 1), (0, 1), (1, 2), 2),
    Call(
        IMAGE_BYTES, Draw(4, 1, 3, 3, dtype=INT8), *PER_COLUMN, None, None, 5, 7, (1, 1), (1, 1), (1, 1), 4, relu=True
    ),
)
give("quantized_steps", Call(Draw(3, 4, dtype=FLOAT32), 0.1, 3), Call(Draw(3, 4, dtype=FLOAT32), 0.1, 3, result="int8"))
give("quantized_numbers", Call(BYTES, 0.1, 3))
give(
    "quantized_pair", Call(BYTES, BYTES, 0.1, 3, 0.2, 4, 0.3, 5), Call(BYTES, BYTES, 0.1, 3, 0.2, 4, 2.0, 5, how="mul")
)
give("_weight_int8pack_mm", Call(Draw(3, 8, dtype=FLOAT32), Draw(4, 8, dtype=INT8), Draw(4, dtype=FLOAT32)))
PACKED = Draw(16, 32, dtype=UINT8, low=0, high=255)
SCALES = Draw(2, 16, 2, dtype=FLOAT32)
give(
    "_weight_int4pack_mm_for_cpu",
    Call(Draw(2, 64, dtype=FLOAT32), PACKED, 32, SCALES),
    Call(Draw(6, 64, dtype=FLOAT32), PACKED, 32, SCALES),
)
give("_convert_weight_to_int4pack_for_cpu", Call(Draw(16, 64, dtype=INT32, low=0, high=16), 1))
WORDS = Draw(2, 16, 16, dtype=INT32, low=-(1 << 31), high=1 << 31)  # 32 rows of 64 numbers, or of 128 of four bits
ROW_SCALES = Draw(32, dtype=FLOAT32, low=0.001, high=0.002)
give("linear_int8_words", *(Call(Draw(m, 64, dtype=FLOAT32), WORDS, ROW_SCALES) for m in (1, 5)))
FOUR_BIT_SCALES = tuple(Draw(2, 32, dtype=FLOAT32, low=low, high=0.02) for low in (0.01, -0.02))
give("linear_int4_words", *(Call(Draw(m, 128, dtype=FLOAT32), WORDS, *FOUR_BIT_SCALES) for m in (2, 5)))
BLOCKS = Draw(3, 2, 144, dtype=UINT8, low=0, high=60)  # the scales are small numbers
FOURS = Draw(3, 2, 18, dtype=UINT8, low=0, high=60)
SIXTEEN = Draw(16, dtype=FLOAT32)
give(
    "gguf_numbers", Call(BLOCKS, None, kind="Q4_K"), Call(FOURS, None, kind="Q4_0"), Call(FOURS, SIXTEEN, kind="IQ4_NL")
)
give("gguf_linear", Call(Draw(2, 512), BLOCKS, None, kind="Q4_K"), Call(Draw(5, 64), FOURS, None, kind="Q4_0"))
