"""The partitions of many keys at once: Kafka's murmur2 on columns.

A derived record's header names the record before it in the same partition, so the partition must
be known before the record is produced. The same function as `kafka.partition_of`; a test compares
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_SEED = np.uint32(0x9747B28C)
_FACTOR = np.uint32(0x5BD1E995)

Hashes = npt.NDArray[np.uint32]


def partitions_of(keys: Sequence[bytes], partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key."""
    positive = murmur2(keys) & np.uint32(0x7FFFFFFF)
    return positive.astype(np.int64) % partitions


def murmur2(keys: Sequence[bytes]) -> Hashes:
    """Java Kafka's 32-bit murmur2 of each key; about as many steps as the longest has words."""
    sizes = np.fromiter(map(len, keys), np.int64, len(keys))
    starts = np.cumsum(sizes) - sizes
    raw = np.frombuffer(b"".join(keys) + b"\0" * 4, np.uint8)
    # A word at every byte, aligned or not.
    words: npt.NDArray[Any] = np.ndarray((raw.size - 3,), "<u4", raw.data, strides=(1,))
    hashes = _SEED ^ sizes.astype(np.uint32)
    for word in range(int(sizes.max(initial=0)) // 4):
        rows = np.flatnonzero(sizes >= 4 * word + 4)
        k = words[starts[rows] + 4 * word] * _FACTOR
        k = (k ^ k >> np.uint32(24)) * _FACTOR
        hashes[rows] = hashes[rows] * _FACTOR ^ k
    odd = sizes & 3
    rows = np.flatnonzero(odd)
    rest = words[starts[rows] + sizes[rows] - odd[rows]]
    mask = (np.uint32(1) << (8 * odd[rows]).astype(np.uint32)) - np.uint32(1)
    hashes[rows] = (hashes[rows] ^ rest & mask) * _FACTOR
    hashes = (hashes ^ hashes >> np.uint32(13)) * _FACTOR
    return hashes ^ hashes >> np.uint32(15)
