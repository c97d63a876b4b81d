"""Lets vLLM 0.32 for CPUs start together with LMCache.

At its start vLLM looks into the attributes of every module that is loaded. LMCache loads llvmlite, whose `lib` answers
any name, `__dict__` too, with a function of the library, and vLLM takes that for a dictionary. Nothing of either is
changed beyond: names with two underscores are no functions of llvmlite's.
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
