"""The one kind of error that the launcher shows to its user as a sentence."""


class StackError(RuntimeError):
    """Something of the stack cannot be had; the message says what and what to do about it."""
