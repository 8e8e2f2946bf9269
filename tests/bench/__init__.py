"""Benchmarks: what the lane, the whole write-to-read path and rebuilds do on this machine.

`headrace bench` runs them against the local stack. Every measured thing runs in a process of its
own (`contenders`), contenders take turns so that a slow minute hits all of them, and a figure is
only reported when the totals are exactly the generator's.
"""
