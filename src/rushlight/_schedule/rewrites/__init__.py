"""Graphs rewritten before they are scheduled: primitives without a kernel of their own become simpler ones."""
