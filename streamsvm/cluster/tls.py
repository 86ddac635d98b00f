"""What can be wrong with TLS between here and a scheduler, looked at where Dask only waits."""

from __future__ import annotations

import socket
import ssl
from contextlib import closing
from urllib.parse import urlsplit

from streamsvm.errors import SecurityError

PROBE_SECONDS = 5.0
VARIABLE = "DASK_DISTRIBUTED__COMM__TLS__"


def check_files(ca_file: str, cert: str, key: str | None) -> None:
    """Raise SecurityError E-TLS for the first file that cannot be read, holds no certificate, or is of another key.

    ``key`` is None where the file of the certificate holds it, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise _unusable(ca_file, error, "CA_FILE") from error
    for path in (cert, key or cert):
        try:
            open(path, "rb").close()
        except OSError as error:
            raise _unusable(path, error, "CLIENT__CERT" if path == cert else "CLIENT__KEY") from error
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        raise _unusable(f"{cert} with the key {key}" if key else cert, error, "CLIENT__CERT") from error


def _unusable(what: str, error: OSError, variable: str) -> SecurityError:
    """An SSLError is an OSError whose text says more than its number."""
    why = (error.reason or str(error)) if isinstance(error, ssl.SSLError) else error.strerror
    found = f"{what} cannot be used for tls://: {str(why).replace('_', ' ').lower()}"
    return SecurityError(found, hint=f"name files in PEM format; this one is from {VARIABLE}{variable}", code="E-TLS")


def speaks_tls(url: str) -> bool | None:
    """Return whether what listens at an address answers with TLS; None where nothing listens, or nobody can tell."""
    where = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent: this only asks who is there
    try:
        raw = socket.create_connection((where.hostname, where.port), PROBE_SECONDS)
    except (OSError, ValueError):
        return None
    with closing(raw):
        try:
            context.wrap_socket(raw, server_hostname=where.hostname).close()
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")  # a refusal in TLS; anything else is no TLS
        except OSError:
            return False
    return True
