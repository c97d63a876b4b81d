"""Without LMCache there is no plug-in for it, and one sentence says what to install."""
from __future__ import annotations

import sys

import pytest


def test_without_lmcache_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "lmcache" or name.startswith("libkvbm.lmcache")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lmcache", None)
    with pytest.raises(ImportError, match="libkvbm.lmcache needs LMCache: pip install lmcache==0.5.6"):
        import libkvbm.lmcache  # noqa: F401
