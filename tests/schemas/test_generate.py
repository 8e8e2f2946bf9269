from schemas.catalog import SYSTEMS
from schemas.generate import stale


def test_generating_leaves_no_diff() -> None:
    assert list(stale(SYSTEMS)) == []
