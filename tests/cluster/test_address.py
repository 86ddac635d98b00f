"""Which addresses are taken, and which are refused because whoever can reach them could run programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsvm.cluster.connection import parse_address
from streamsvm.errors import DataError, MissingError, SecurityError, UsageError

OPEN = [
    "tcp://10.0.0.7:8786",
    "tcp://8.8.8.8:8786",
    "tcp://scheduler:8786",
    "tcp://[2001:db8::1]:8786",
    "tcp://0.0.0.0:1",
]


@pytest.mark.parametrize(
    "text", ["tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786", "tcp://127.9.9.9:1"]
)
def test_cluster_address_this_machine_needs_no_encryption(text: str) -> None:
    assert parse_address(text).url == text


@pytest.mark.parametrize("text", OPEN)
def test_cluster_address_open_network_is_refused(text: str) -> None:
    with pytest.raises(SecurityError, match="neither encrypted nor on this machine") as caught:
        parse_address(text)
    assert caught.value.exit_code == 77


@pytest.mark.parametrize("text", OPEN)
def test_cluster_address_open_network_is_allowed_with_a_warning_each_time(text: str) -> None:
    with pytest.warns(UserWarning, match="can run programs as you"):
        assert parse_address(text, insecure=True).url == text


def test_cluster_address_with_tls_may_be_anywhere() -> None:
    assert parse_address("tls://10.0.0.7:8786").encrypted


def test_cluster_address_local_says_how_many_workers() -> None:
    assert parse_address("local:3").workers == 3


@pytest.mark.parametrize(
    "text", ["local:", "local:0", "local:-1", "local:two", "tcp://host", "http://x:1", "tcp://:1", "x:y"]
)
def test_cluster_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


@pytest.mark.parametrize("end", ["/", "/status", "?x=1", "#x"])
def test_cluster_address_ends_with_the_port(end: str) -> None:
    with pytest.raises(UsageError, match="after its port") as refused:
        parse_address(f"tcp://127.0.0.1:8786{end}")
    hinted = refused.value.hint.split("--cluster ")[1]
    assert parse_address(hinted).url == hinted


@pytest.mark.parametrize("text", ["tcp://me:secret@127.0.0.1:8786", "tls://me@host:8786", "http://me:secret@host/"])
def test_cluster_address_password_is_no_part_of_it_and_is_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="must not contain a user name or a password") as refused:
        parse_address(text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["local:1000000", f"local:{10**30}"])
def test_cluster_address_more_workers_than_the_machine_can_have(text: str) -> None:
    with pytest.raises(UsageError, match="asks for too many workers") as refused:
        parse_address(text)
    assert parse_address(refused.value.hint.split()[-1]).workers


def test_cluster_address_scheduler_file_is_held_to_the_same_rules(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": "tcp://127.0.0.1:8786"}))
    assert parse_address(f"scheduler-file:{path}").url == "tcp://127.0.0.1:8786"
    path.write_text(json.dumps({"address": "tcp://10.0.0.7:8786"}))
    with pytest.raises(SecurityError):
        parse_address(f"scheduler-file:{path}")


@pytest.mark.parametrize("content", ["", "{}", "[1]", "[" * 100_000])
def test_cluster_address_file_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(content)
    with pytest.raises(DataError):
        parse_address(f"scheduler-file:{path}")


def test_cluster_address_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        parse_address(f"scheduler-file:{tmp_path}/nothing.json")
