"""What is kept of a client's address: the network it is in, which many share."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

KEPT_BITS: Final = {4: 24, 6: 48}
"""By version; what registries hand out is rarely smaller."""


def network_of(address: str) -> str:
    """The network, as `192.0.2.0/24` or `2001:db8:1::/48`; empty for what is no address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return ""
    if isinstance(parsed, IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    bits = KEPT_BITS[parsed.version]
    dropped = parsed.max_prefixlen - bits
    first = type(parsed)(int(parsed) >> dropped << dropped)
    return f"{first}/{bits}"
