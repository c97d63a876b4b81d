"""The "events" table of an engine's configuration."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

from ..engine import ConfigurationError
from .publisher import Publisher
from .source import EventSource

if TYPE_CHECKING:
    from ..manager import Manager

_PUBLISHER = ("endpoint", "replay_endpoint", "topic", "buffer_steps", "hwm", "max_queue_size", "encoding", "bind")
_SOURCE = ("hashes", "limit", "mediums", "locality", "ownership")


class OwnedSource(EventSource):
    """A source with a publisher of its own, which goes with it."""

    def __init__(self, manager: Manager, publisher: Publisher, **options: Any) -> None:
        self.publisher = publisher
        super().__init__(manager, publisher, **options)

    def close(self) -> None:
        super().close()
        self.publisher.close()


def open_source(manager: Manager, options: Optional[Mapping[str, Any]], *, engine: str = "vllm",
                rank: Optional[int] = None) -> Optional[OwnedSource]:
    """A started source and its publisher, from the table in a plug-in's options; None where there is no table.

        "events": {"endpoint": "tcp://*:5567", "replay_endpoint": "tcp://*:5568", "topic": "kv@pod-1@my-model"}

    Keys are those of Publisher and EventSource; `mediums` is a table of tier numbers and names."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"events is {options!r}: a table with an endpoint is expected")
    for key in options:
        if key not in _PUBLISHER + _SOURCE:
            raise ConfigurationError(f"events has no option {key!r}: there are {', '.join(sorted(_PUBLISHER + _SOURCE))}")
    if "endpoint" not in options:
        raise ConfigurationError("events needs an endpoint, as tcp://*:5567; the engine's own events have 5557")
    source: dict[str, Any] = {key: options[key] for key in _SOURCE if key in options}
    source.setdefault("hashes", engine)
    if "mediums" in source:
        source["mediums"] = _mediums(source["mediums"])
    variant = "sglang" if engine == "sglang" else "vllm"
    publisher = Publisher(**{key: options[key] for key in _PUBLISHER if key in options}, rank=rank, variant=variant)
    try:
        owned = OwnedSource(manager, publisher, **source)
    except BaseException:
        publisher.close()
        raise
    owned.start()
    return owned


def _mediums(table: object) -> dict[int, str]:
    if isinstance(table, Mapping) and all(str(tier).isdigit() and isinstance(name, str) for tier, name in
                                          table.items()):
        return {int(str(tier)): name for tier, name in table.items()}
    raise ConfigurationError(f"mediums is {table!r}: a table such as {{\"0\": \"CPU\", \"1\": \"STORAGE\"}} is expected")
