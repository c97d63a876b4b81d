"""libkvbm.aibrix: what is refused at start, and how it gets into AIBrix."""
from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import pytest

from libkvbm.engine import ConfigurationError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import aibrix_kvcache
    except ImportError:
        aibrix_kvcache = None

needs_aibrix = pytest.mark.skipif(aibrix_kvcache is None, reason="pip install aibrix-kvcache==0.8.0")
pytestmark = pytest.mark.filterwarnings("default")
MODEL = {"AIBRIX_KV_CACHE_OL_KVBM_MODEL": "m@1"}


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=120)


def test_the_import_says_what_to_install_where_aibrix_is_missing() -> None:
    ran = python("-c", "import sys; sys.modules['aibrix_kvcache'] = None\nimport libkvbm, libkvbm.engine\n"
                 "import libkvbm.aibrix")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("ImportError: libkvbm.aibrix needs aibrix-kvcache")
    assert ran.stderr.splitlines()[-1].endswith("pip install aibrix-kvcache==0.8.0")


def test_the_entry_point_touches_nothing_unless_kvbm_is_asked_for() -> None:
    program = "import sys, libkvbm.engine.entry as e; e.aibrix(); print('aibrix_kvcache' in sys.modules)"
    for backend in ("", "ROCKSDB"):
        assert python("-c", program, AIBRIX_KV_CACHE_OL_L2_CACHE_BACKEND=backend).stdout == "False\n"


@needs_aibrix
class TestHook:
    def test_the_entry_point_installs_where_kvbm_is_asked_for(self) -> None:
        program = ("import libkvbm.engine.entry as e; e.aibrix(); e.aibrix()\n"
                   "from aibrix_kvcache.l2.connectors import Connector; print(Connector._libkvbm_installed)")
        ran = python("-c", program, AIBRIX_KV_CACHE_OL_L2_CACHE_BACKEND=" kvbm ")
        assert ran.stdout == "True\n", ran.stderr

    def test_the_launcher_runs_a_program_with_its_arguments(self, tmp_path: Any) -> None:
        (tmp_path / "beside.py").write_text("here = 'beside'\n")
        (tmp_path / "program.py").write_text(
            "import sys, os, beside\nfrom aibrix_kvcache.l2.connectors import Connector\n"
            "print(sys.argv[1:], __name__, beside.here, Connector._libkvbm_installed,\n"
            "      os.environ['AIBRIX_KV_CACHE_OL_L2_CACHE_BACKEND'])\n")
        ran = python("-m", "libkvbm.aibrix", str(tmp_path / "program.py"), "a", "-b")
        assert ran.stdout == "['a', '-b'] __main__ beside True KVBM\n", ran.stderr
        assert python("-m", "libkvbm.aibrix").returncode == 2

    def test_another_version_is_refused_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from aibrix_kvcache.l2.connectors import Connector

        from libkvbm.aibrix import install
        monkeypatch.setattr(aibrix_kvcache, "__version__", "0.9.1")
        monkeypatch.setattr(Connector, "_libkvbm_installed", False, raising=False)
        before = Connector.create
        with pytest.raises(ConfigurationError, match=r"made for aibrix-kvcache 0\.8\.0, and this is 0\.9\.1: pip"):
            install()
        assert Connector.create is before

    def test_an_interface_that_differs_under_the_same_version_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from aibrix_kvcache.l2.connectors import Connector
        from aibrix_kvcache.l2.l2_cache import L2Cache

        from libkvbm.aibrix import install
        monkeypatch.setattr(Connector, "_libkvbm_installed", False, raising=False)
        monkeypatch.setattr(L2Cache, "__init__", lambda self, backend: None)
        with pytest.raises(ConfigurationError, match="another interface"):
            install()

    def test_other_backends_are_made_as_before_and_twice_is_once(self) -> None:
        from aibrix_kvcache.l2.connectors import Connector, ConnectorConfig

        from libkvbm.aibrix import install
        install()
        create = Connector.create
        install()
        assert Connector.create is create
        assert Connector.create(ConnectorConfig("MOCK", "n", "p", None)).name == "Mock"  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="Unknown connector type: KVBN"):
            Connector.create(ConnectorConfig("KVBN", "n", "p", None))  # type: ignore[arg-type]


@needs_aibrix
class TestOptions:
    @staticmethod
    def options(**given: str) -> Any:
        from libkvbm.aibrix import Options
        return Options.from_envs({**MODEL, **{f"AIBRIX_KV_CACHE_OL_KVBM_{k}": v for k, v in given.items()}})

    def test_everything_arrives(self, tmp_path: Any) -> None:
        (tmp_path / "secret").write_bytes(bytes(range(40)))
        options = self.options(HOST_CAPACITY="8GiB", DISK=str(tmp_path), DISK_CAPACITY="2 GiB", SHARE="true",
                               TENANT="t", SECRET_FILE=str(tmp_path / "secret"), USE_ZERO_COPY="1",
                               SETTINGS='{"host.policy": "lru"}', CONFIG_FILE="c.toml", WEAK_HASHES="1",
                               STORES="file:///mnt/kv?shared=on  s3://bucket/prefix")
        made = options.configuration
        assert made.settings == {"host.capacity": "8GiB", "host.policy": "lru"}
        assert (made.disk, made.disk_capacity, made.share, made.tenant) == (str(tmp_path), 2 << 30, True, "t")
        assert made.stores == ("file:///mnt/kv?shared=on", "s3://bucket/prefix")
        assert (made.secret, made.config_file) == (bytes(range(32)), "c.toml")
        assert (options.model, options.zero_copy, made.weak_hashes) == ("m@1", True, True)

    def test_empty_variables_are_as_if_they_were_not_set(self) -> None:
        options = self.options(DISK="", SHARE="", SETTINGS=" ", STORES=" ")
        assert options.configuration.disk is None and not options.configuration.share
        assert options.configuration.stores == ()
        assert not options.configuration.weak_hashes

    @pytest.mark.parametrize("given, says", [
        ({"MODEL": ""}, "KVBM_MODEL is not set"),
        ({"HOSTCAPACITY": "1GiB"}, "there is no variable AIBRIX_KV_CACHE_OL_KVBM_HOSTCAPACITY"),
        ({"SHARE": "yes"}, "SHARE is 'yes': 0 or 1"),
        ({"SETTINGS": "host.capacity=1"}, "SETTINGS is no JSON"),
        ({"SETTINGS": "[1]"}, "a table is expected"),
        ({"DISK_CAPACITY": "much"}, "disk_capacity is 'much'"),
        ({"SECRET_FILE": "nowhere"}, "secret_file cannot be read"),
        ({"STORES": "/mnt/kv"}, "stores: the first is no URL"),
    ])
    def test_a_mistake_is_refused_in_a_sentence(self, given: dict[str, str], says: str) -> None:
        with pytest.raises(ConfigurationError, match=says):
            self.options(**given)


@needs_aibrix
class TestStatuses:
    def test_every_status_of_the_library_has_the_code_of_its_remedy(self) -> None:
        from aibrix_kvcache.status import StatusCodes as C

        from libkvbm import Status as S
        from libkvbm.aibrix import code_of
        expected = {
            C.OK: {S.OK, S.PARTIAL},
            C.INVALID: {S.INVALID, S.STALE, S.FOREIGN, S.STATE, S.FORKED, S.CONFIG, S.EXISTS},
            C.OUT_OF_MEMORY: {S.NO_ROOM, S.AGAIN, S.NO_MEMORY, S.DISK_FULL, S.LIMIT},
            C.TIMEOUT: {S.DEADLINE},
            C.CANCELLED: {S.CANCELLED, S.CLOSED},
            C.ERROR: {S.OWNER_GONE, S.INTERNAL, S.IO, S.TIER_DISABLED},
            C.NOT_FOUND: {S.MISS, S.DAMAGED, S.MISMATCH},
            C.DENIED: {S.IN_USE, S.QUOTA, S.UNSUPPORTED, S.VERSION, S.PERMISSION},
        }
        assert {code: {status for status in S if code_of(status) is code} for code in C} == expected
        assert code_of(-250) is C.OUT_OF_MEMORY and code_of(-999) is C.ERROR

    def test_a_failure_says_why_and_survives_being_taken_for_a_task(self) -> None:
        from libkvbm import Status as S
        from libkvbm.aibrix import status_of
        failed = status_of(S.QUOTA)
        assert failed.result() is failed and str(failed.value).startswith("KVBM_ERR_QUOTA: ")
        assert status_of(S.IO, "the disk is gone").value == "the disk is gone"
        assert status_of(S.PARTIAL).is_ok()
