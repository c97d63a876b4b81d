"""Common fixtures: small managers, and an environment without settings."""
from __future__ import annotations

import os
from collections.abc import Iterator

# Every KVBM_ variable is a setting to the library.
for name in [name for name in os.environ if name.startswith("KVBM_")]:
    del os.environ[name]

import pytest  # noqa: E402

import libkvbm  # noqa: E402


@pytest.fixture
def context() -> Iterator[libkvbm.Context]:
    with libkvbm.Context() as context:
        yield context


@pytest.fixture
def manager(context: libkvbm.Context) -> Iterator[libkvbm.Manager]:
    with libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20) as manager:
        yield manager


@pytest.fixture
def ns(manager: libkvbm.Manager) -> Iterator[libkvbm.Namespace]:
    with libkvbm.Namespace(manager, "test model") as ns:
        yield ns
