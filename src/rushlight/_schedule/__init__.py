"""From a graph to groups of primitives that become kernels, under the policy of a target.  Knows neither loops nor
devices.
"""
