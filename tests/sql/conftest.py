"""Every test of SQL runs on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from db_support import KINDS, Servers

from gsched.accounting.database import Database


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    found = Servers()
    yield found
    found.close()


@pytest.fixture(params=["sqlite", *KINDS])
def url(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> str:
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/accounting.sqlite"
    return servers.of(request.param).url()


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    made = Database(url)
    made.migrate()
    yield made
    made.close()
