"""The framework: everything a system needs to fold a log into a read model.

This package imports nothing else of Headrace. Read it in this order:
`topic` (what a topic is), `batch` (what an agent receives), `outcome` (what a fold
answers), `position` (how far a read model is folded), `sink` (where it is stored),
`projection` (the pure fold), `lane` (the loop that joins them).
"""
