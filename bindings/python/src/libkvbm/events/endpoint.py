"""Endpoints as engines read them: the side that binds, and the port of each data-parallel rank."""
from __future__ import annotations

from ..engine import ConfigurationError

_SCHEMES = ("tcp://", "ipc://", "inproc://")


def check(endpoint: str, what: str = "endpoint") -> str:
    if not isinstance(endpoint, str) or not endpoint.startswith(_SCHEMES) or endpoint in _SCHEMES:
        raise ConfigurationError(f"{what} is {endpoint!r}: tcp://HOST:PORT, ipc://PATH or inproc://NAME is expected")
    if endpoint.startswith("tcp://"):
        port = endpoint.rpartition(":")[2]
        if port != "*" and not (port.isascii() and port.isdigit() and int(port) <= 65535):
            raise ConfigurationError(f"{what} is {endpoint!r}: the port is missing or no number up to 65535")
    return endpoint


def binds(endpoint: str) -> bool:
    """Whether the engine's side of an endpoint listens: wildcard addresses, IPv6 in short form, ipc and inproc do;
    a named host is connected to."""
    return ("*" in endpoint or "::" in endpoint or "0.0.0.0" in endpoint
            or endpoint.startswith(("ipc://", "inproc://")))


def reader_binds(endpoint: str) -> bool:
    """Whether a reader listens: for wildcards alone, to which engines connect. An ipc path is the engine's."""
    return "*" in endpoint or "0.0.0.0" in endpoint or "[::]" in endpoint


def of_rank(endpoint: str, rank: int) -> str:
    """The endpoint of a data-parallel rank: the port, plus the rank. A port that the system chooses stays so."""
    if rank == 0:
        return endpoint
    if endpoint.startswith("inproc://"):
        return f"{endpoint}_dp{rank}"
    if endpoint.startswith("ipc://"):
        raise ConfigurationError(f"{endpoint} has no port, so data-parallel ranks would share it: use tcp://")
    host, _, port = endpoint.rpartition(":")
    if port in ("*", "0"):
        return endpoint
    if int(port) + rank > 65535:
        raise ConfigurationError(f"{endpoint} plus rank {rank} is no port")
    return f"{host}:{int(port) + rank}"
