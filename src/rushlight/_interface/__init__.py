"""The few names by which public packages use the rooms: a package imports from here, from `rushlight`, or from other
public packages.

| module | what it offers | who needs it |
| --- | --- | --- |
| `base` | pages that load by first use, names that are absent, errors at the user's line, pytrees | everybody |
| `tensors` | state of the thread, specs, checks of arguments, dims and strides | ordinary Python over tensors |
| `operators` | the table and its functions, registering composites, casts, settings of operators | composites of `nn`, `sparse`, `nested` |
| `autograd` | recording a backward rule, edges, versions, callbacks | `autograd`, composites with a backward of their own |
| `kinds` | dispatch types: subclasses that say what an operator does with them | `sparse`, `nested`, `masked` |
| `dispatch` | overrides, observers of calls, regions of automatic casts | `library`, `profiler`, `amp`, `overrides` |
| `functorch` | levels of function transforms | `autograd.functional`, `library`, `distributions` |
| `devices` | backends, states of random generators | `random`, `serialization`, `utils.data`, `triton` |
| `blocks` | the block IR of kernels, and dtypes | `triton` |
| `memory` | storages, and tensors over them | `serialization`, `utils.data` |
| `files` | pickled forms, quantized tensors, checksums | `serialization` |
| `processes` | memory that processes share | `multiprocessing`, `utils.data` |
| `programs` | what a callable does, as a graph with effects | `fx` |
| `multi_tensor` | one update rule over all parameters | `optim` |

A module here holds no code: it names what rooms define, with a line on each, so that a room can change behind it.  A
public page that only shows a public name of PyTorch's (`autograd.Function`) imports that from the room that defines it.
"""
