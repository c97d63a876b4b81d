"""Facts of each engine that decide the meaning of its KV, as text: the rows of "What KV depends on" in
docs/formats.md. The functions take the engines' own objects. No module here imports an engine, so tests run without
one.

All fields of a configuration count, except those that are known not to affect KV. So a new field of a new engine
version makes its blocks different, and never silently equal.
"""
from __future__ import annotations

import dataclasses
import enum
from typing import Any, Collection, Mapping

_UNSET: tuple[object, ...] = (None, "", "auto")


def fields_of(config: Any, says_nothing: Collection[str] = ()) -> dict[str, Any]:
    """The set fields of a configuration: the parameters of its constructor, as plain values. Excluded are fields that
    do not affect KV, begin with an underscore, or are None, empty or "auto"."""
    if config is None:
        return {}
    if dataclasses.is_dataclass(config):
        names: Collection[str] = [field.name for field in dataclasses.fields(config) if field.init]
    else:
        names = list(vars(config))
    found = {name: plain(getattr(config, name, None)) for name in names
             if name not in says_nothing and not name.startswith("_")}
    return {name: value for name, value in found.items() if value not in _UNSET and value != [] and value != {}}


def plain(value: Any) -> Any:
    """A value that is the same text in every process: no addresses, no order of sets."""
    if value is None or isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(plain(item)) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    if type(value).__module__ == "torch" or hasattr(value, "__fspath__"):
        return str(value)  # element types, paths
    named = value if isinstance(value, type) or callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
