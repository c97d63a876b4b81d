"""Lets vLLM 0.32 for CPUs start together with LMCache.

At its start vLLM reads the attributes of every loaded module. LMCache loads llvmlite. Its `lib` returns a function of
the library for any name, `__dict__` too, which vLLM takes for a dictionary. Nothing else of either is changed: names
with two underscores are no functions of llvmlite's.
"""
import importlib.util

if importlib.util.find_spec("llvmlite") is not None:
    import llvmlite.binding.ffi as _ffi

    _kind = type(_ffi.lib)
    _answer = _kind.__getattr__

    def _functions_only(self: object, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _answer(self, name)

    _kind.__getattr__ = _functions_only
