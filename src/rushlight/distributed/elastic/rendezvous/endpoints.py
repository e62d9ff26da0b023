"""Where machines meet, as text: `torch.distributed.elastic.rendezvous.utils`."""

from __future__ import annotations

import re

__all__ = ["parse_rendezvous_endpoint"]


def parse_rendezvous_endpoint(endpoint: str | None, default_port: int) -> tuple[str, int]:
    """Host and port of "host", "host:port" or "[IPv6 address]:port"; nothing means this machine.

    ValueError for another port or host.

    >>> parse_rendezvous_endpoint("[::1]:29400", 1), parse_rendezvous_endpoint(None, 29500)
    (('::1', 29400), ('localhost', 29500))
    """
    endpoint = (endpoint or "").strip()
    if not endpoint:
        return "localhost", default_port
    whole = endpoint.startswith("[") and endpoint.endswith("]")
    host, colon, text = (endpoint, "", "") if whole else endpoint.rpartition(":")
    if not whole and not colon:
        host = text
    if len(host) > 1 and host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    port = default_port
    if colon:
        port = int(text) if re.fullmatch("[0-9]{1,5}", text) else -1
        if not 0 <= port < 2**16:
            raise ValueError(
                f"The port number of the rendezvous endpoint '{endpoint}' must be an integer between 0 and 65536."
            )
    if not re.match(r"^[\w\.:-]+$", host):
        raise ValueError(
            f"The hostname of the rendezvous endpoint '{endpoint}' must be a dot-separated list of labels, an IPv4 "
            "address, or an IPv6 address."
        )
    return host, port
