"""Throwaway databases are usable, empty at the start, and gone when their process has ended."""

import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from between_nodes import databases


def child(code, tmp_path, **environment):
    """Run `code` in a process of its own with an empty temporary folder; return its output lines and that folder.

    XDG_RUNTIME_DIR is unset as in a container. The folder's path is short, for the sake of the server's socket.
    """
    inherited = {key: value for key, value in os.environ.items() if key not in ("XDG_RUNTIME_DIR", "DATABASE_URL")}
    variables = {**inherited, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(tmp_path)), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture
def short_path():
    with tempfile.TemporaryDirectory(prefix="bn") as path:
        os.chmod(path, 0o755)
        yield Path(path)


def test_a_sqlite_file_starts_empty_every_time():
    path = databases.sqlite_file("again")
    assert not path.exists()
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table t (x)")
    connection.commit()
    assert path.with_name("again.sqlite-wal").exists()
    connection.close()
    path.with_name("again.sqlite-wal").write_bytes(b"left by a killed process")

    assert databases.sqlite_file("again") == path
    assert list(path.parent.glob("again*")) == []


def test_files_of_different_names_are_different():
    assert databases.sqlite_file("one") != databases.sqlite_file("two")


def test_the_folder_is_there_until_the_process_ends(short_path):
    code = (
        "import sqlite3; from between_nodes import databases as d\n"
        "sqlite3.connect(d.sqlite_file()).execute('create table t (x)')\n"
        "print(d.folder().is_dir(), d.folder() is d.folder(), d.sqlite_file('x').parent == d.folder())"
    )
    assert child(code, short_path) == ["True True True"]
    assert list(short_path.iterdir()) == []


def test_postgres_serves_until_the_process_ends_and_leaves_nothing(short_path):
    code = (
        "import os, psycopg; from between_nodes import databases as d\n"
        "url = d.postgres()\n"
        "assert url == d.postgres() and 'XDG_RUNTIME_DIR' not in os.environ\n"
        "connection = psycopg.connect(url)\n"  # left open on purpose, as a reader would
        "print(connection.execute('select 40 + 2').fetchone()[0])\n"
        "print((d.folder() / 'postgres' / 'postmaster.pid').read_text().split()[0])"
    )
    answer, pid = child(code, short_path)
    assert answer == "42"
    assert not running(int(pid))
    assert list(short_path.iterdir()) == []


def running(pid):
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def fresh():
    databases.postgres.cache_clear()
    yield
    databases.postgres.cache_clear()


def test_a_given_database_is_used(fresh, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    monkeypatch.setattr(databases, "_pgserver", lambda: pytest.fail("started a server of its own"))
    assert databases.postgres() == "postgresql://somewhere/else"


def test_a_server_that_does_not_start_says_what_to_do(fresh, monkeypatch):
    def broken():
        raise OSError("no room left")

    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(databases, "_pgserver", broken)
    with pytest.raises(RuntimeError, match="set DATABASE_URL to the address of a server you have") as caught:
        databases.postgres()
    assert isinstance(caught.value.__cause__, OSError)
