"""From groups to loop nests to scalar LLVM text: what CPU and GPU share.  How kernels are run is the backends'
business.
"""
