"""A cluster that only talks to those its own authority has signed for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click.testing
import dask
import distributed  # noqa: F401  its settings are there before those of a test
import pytest

from streamsvm.cli.main import cli
from tests.cluster.processes import Processes, command

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


class Authority:
    """A test CA and one certificate it has signed, as .pem files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        self._openssl("req", "-x509", *self._new(folder / "ca.key"), "-out", self.ca, "-subj", "/CN=test authority")
        request = folder / "request.pem"
        self._openssl("req", *self._new(self.key), "-out", request, "-subj", "/CN=localhost")
        signed = ("-CA", self.ca, "-CAkey", folder / "ca.key", "-CAcreateserial", "-days", "2")
        self._openssl("x509", "-req", "-in", request, *signed, "-out", self.cert)

    @staticmethod
    def _new(key: Path) -> tuple[str | Path, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key)

    @staticmethod
    def _openssl(*arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    def options(self) -> tuple[str, ...]:
        """Of a scheduler or worker."""
        return ("--tls-ca-file", str(self.ca), "--tls-cert", str(self.cert), "--tls-key", str(self.key))

    def environment(self) -> dict[str, str]:
        """Of a client."""
        prefix = "DASK_DISTRIBUTED__COMM__TLS__"
        client = {f"{prefix}CLIENT__CERT": str(self.cert), f"{prefix}CLIENT__KEY": str(self.key)}
        return {f"{prefix}CA_FILE": str(self.ca), **client}


def refused(environment: dict[str, str], *arguments: str | Path) -> click.testing.Result:
    """``streamsvm`` in this process, which reads the settings of Dask as one that starts does."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with dask.config.set(dask.config.merge(dask.config.config, dask.config.collect())):
            return click.testing.CliRunner().invoke(cli, ["-q", *map(str, arguments)])


def test_tls_admits_signed_peers_only(store: Path, tmp_path: Path, processes: Processes) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    processes.options = ours.options()
    processes.start_scheduler("tls")
    processes.start_worker()
    assert processes.address.startswith("tls://127.0.0.1:")
    asked = ("fit", store, tmp_path / "m", "--solver", "newton", "--cluster", processes.address)
    done = command(*asked, **ours.environment())
    assert done.returncode == 0, done.stderr
    foreign = refused(theirs.environment(), *asked, "--overwrite")
    assert foreign.exit_code == 77, foreign.stderr
    assert "error[E-TLS]" in foreign.stderr
    bare = refused({}, *asked, "--overwrite")
    assert bare.exit_code == 77, bare.stderr
    assert "CA_FILE" in bare.stderr


def test_tls_what_is_wrong_with_TLS_is_said(store: Path, tmp_path: Path, processes: Processes) -> None:
    """All of it was "no scheduler answers: start one" once, after as long as Dask tries."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    ca, cert, key = (f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY"))
    nothing, text = tmp_path / "nothing.pem", tmp_path / "text.pem"
    text.write_text("no certificate")
    asked = ("fit", store, tmp_path / "m", "--solver", "newton", "--cluster")
    wrong = [(ca, nothing, "No such file"), (cert, nothing, "No such file"), (key, nothing, "No such file")]
    wrong += [(ca, text, "no certificate"), (key, theirs.key, "key values mismatch")]
    for variable, path, why in wrong:
        ended = refused(ours.environment() | {variable: str(path)}, *asked, "tls://127.0.0.1:1")
        assert ended.exit_code == 77, ended.stderr
        assert "error[E-TLS]" in ended.stderr
        assert why.lower() in ended.stderr.lower()
        assert str(path) in ended.stderr
    processes.options = ours.options()
    processes.start_scheduler("tls")
    plain = refused({}, *asked, processes.address.replace("tls:", "tcp:"))
    assert plain.exit_code == 69
    assert "speaks tls, not tcp" in plain.stderr
    assert f"--cluster {processes.address}" in plain.stderr


def test_tls_scheduler_without_TLS_is_not_one_that_is_absent(store: Path, tmp_path: Path, processes: Processes) -> None:
    ours = Authority(tmp_path / "ours")
    processes.start_scheduler()
    address = processes.address.replace("tcp:", "tls:")
    ended = refused(ours.environment(), "fit", store, tmp_path / "m", "--cluster", address)
    assert ended.exit_code == 69, ended.stderr
    assert "speaks tcp, not tls" in ended.stderr
