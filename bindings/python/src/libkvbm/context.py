"""The context: configuration, worker threads, the I/O engine."""
from __future__ import annotations

from types import TracebackType
from typing import Mapping, Optional, Union

from . import _native as raw
from . import _raw
from .log import LogLine, listen
from .memory import read_text, shown, text

SettingValue = Union[str, int, float, bool]


class Context:
    """The shared part of managers. Resolves the configuration once, here: defaults, then the TOML file
    (`config_file`, else $KVBM_CONFIG), then KVBM_* of the environment, then `settings`.

        with Context({"host.capacity": "8GiB"}) as context: ...

    Log lines go to `logging`, the logger "libkvbm", up to the logger's level when the context is created. A callable
    `log` gets them instead, with level, component and text, on a separate thread. False: no log.

    Objects made from it keep the parts that they need; close() ends only this reference. Thread: any.
    """

    __slots__ = ("_handle", "__weakref__")

    def __init__(self, settings: Optional[Mapping[str, SettingValue]] = None, *, config_file: Optional[str] = None,
                 threads: int = 0, log: Union[LogLine, bool, None] = None) -> None:
        options = _raw.kvbm_context_options_t()
        if log is not False:
            options.log_to_pipe(*listen(None if log is True else log))
        options.threads = threads
        pairs = [(text(str(key), "a setting"), text(_value(value), key)) for key, value in (settings or {}).items()]
        memory = raw.Memory(raw.kvbm_setting_t_size * len(pairs))
        for i, (key, value) in enumerate(pairs):
            setting = raw.kvbm_setting_t_at(memory, i)
            setting.key, setting.value = key, value
        if pairs:
            options.settings = memory
            options.n_settings = len(pairs)
        file = text(config_file, "config_file")
        options.config_file = file
        self._handle: Optional[raw.Handle] = raw.kvbm_context_create(options)[1]

    def config(self) -> str:
        """The effective configuration as TOML, each value with its origin as a comment."""
        return read_text(raw.kvbm_context_config, self._handle)

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Ends this reference; twice is fine."""
        self._handle = None

    def __repr__(self) -> str:
        return shown(self, self.closed)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


def config_reference() -> str:
    """The table of all configuration options as Markdown."""
    return read_text(raw.kvbm_config_reference)


def _value(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
