"""Kafka's local part: what its tools are told."""

from __future__ import annotations

import base64
import uuid

from hypothesis import example, given
from hypothesis import strategies as st

from infra.local.parts.kafka import cluster_id


@given(st.uuids())
@example(uuid.UUID(int=0xFB << 120))  # as it is, this one begins with a dash
def test_a_cluster_id_is_no_option_of_a_command(one: uuid.UUID) -> None:
    found = cluster_id(one)
    assert (found[0] == "-", len(found)) == (False, 22)
    assert base64.urlsafe_b64decode(found + "==")[1:] == one.bytes[1:]
