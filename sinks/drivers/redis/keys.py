"""Key names of a read model in Redis/Valkey; the layout exists once, for writer and reader.

Everything of one log partition shares a hash slot, so that one script can check the position and
apply the changes, on a single server and on a Cluster alike:

    {ads-windows:3}:v2:positions              hash: topic → position
    {ads-windows:3}:v2:sealed                 there while the version is sealed
    {ads-windows:3}:v2:tables                 set: t:<table>, z:<ranking>, f:<timeline>
    {ads-windows:3}:v2:b:<table>              zset: bucket or board → its time
    {ads-windows:3}:v2:t:<table>:<bucket>     hash: rest of the key → values
    {ads-windows:3}:v2:z:<ranking>:<board>    zset: place → −score
    {ads-windows:3}:v2:m:<ranking>:<board>    hash: member → score,reached_ms
    {ads-windows:3}:v2:i:<ranking>:<member>   set: the boards the member is on
    {ads-windows:3}:v2:f:<timeline>:<feed>    zset: origin,entry → time_ms

A *place* is `reached_ms` + 2**52 in 16 digits, then the member: ascending (−score, place) is the
order of a ranking. What belongs to no partition has a slot of its own:

    {ads-windows}:live            the version that answers
    {ads-windows}:versions        set of versions
    {ads-windows}:v2:partitions   set of log partitions that were ever written
    {ads-windows}:v2:sealed       there while the version is sealed
"""

from __future__ import annotations

PLACE_DIGITS = 16
PLACE_SHIFT = 2**52


def standing(place: bytes, score: float) -> tuple[bytes, bytes]:
    """Member and `score,reached_ms`, as the hash has them, of an entry of the zset."""
    reached_ms = int(place[:PLACE_DIGITS]) - PLACE_SHIFT
    return place[PLACE_DIGITS:], b"%d,%d" % (-int(score), reached_ms)


def prefix(model: str, version: int, partition: int) -> str:
    """What the keys of one log partition begin with."""
    return f"{{{model}:{partition}}}:v{version}:"


def live(model: str) -> str:
    """The key of the live version's number."""
    return f"{{{model}}}:live"


def versions(model: str) -> str:
    """The key of the set of versions."""
    return f"{{{model}}}:versions"


def partitions(model: str, version: int) -> str:
    """The key of the set of log partitions of a version."""
    return f"{{{model}}}:v{version}:partitions"


def sealed(model: str, version: int) -> str:
    """The key that is there while a version is sealed."""
    return f"{{{model}}}:v{version}:sealed"
