"""The inner kernels as LLVM text: tiles, panels, transforms, codelets."""
