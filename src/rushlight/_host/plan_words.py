"""The words of a native plan's description, which `_engine.dispatch.native_plans` writes and `plan_native` and `node_native` read."""

from __future__ import annotations

N_INPUTS, N_TENSORS, N_STEPS, STEPS, N_WORDS, LARGEST, N_RESULTS, RESULTS, N_SHOWN, ORDER = range(10)
BACKWARD_SPEC, NODE_TYPE, N_EDGES, EDGES, N_SAVED, SAVED, DIFFERENTIABLE = range(10, 17)
(
    CREATION,
    RECORDS,
    SEVERAL,
    N_GIVEN,
    CONSTANTS,
    OFFSET,
    SILENT,
    QUIET,
    TARGET,
    BOUNDED,
    LEAST,
    MOST,
    TARGET_SPEC,
    DESCRIPTION_WORDS,
) = range(17, 31)
# RESULTS: for each result its place among the words and its spec, then for each tensor that goes in 0 and its spec (0: any).
FROM_TENSOR, FROM_NUMBER, FROM_RESULT = 0, 1, 2  # what a saved value is: an argument, or a result or residual
# Words that say how a description is made from another: how many it has, how many constants come after it, where its results are and how many, where
# its backward spec is (0: there is none), how many steps, how many bytes the elements of views have (0: it shows none); then lists.
C_WORDS, C_CONSTANTS, C_RESULTS, C_SPECS, C_BACKWARD_SPEC, C_STEPS, C_ITEM, C_LISTS = range(8)
