"""From graphs to kernels: schedule, fusion, loop nests, LLVM text.  How they are run is the backends' business."""
