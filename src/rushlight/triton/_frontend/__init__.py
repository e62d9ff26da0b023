"""The front end of the Triton language: functions in Python's syntax, read as trees, become kernels of the block IR.

Nothing of the user's text is executed by Python; each node has a rule here.
"""
