"""Find code that nothing uses. What a registry names as "module:attribute" is used; so is what ALLOWED gives a reason for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from vulture import Vulture

PLACES = ("streamsvm", "tests", "tools")
ALLOWED = {
    "_repr_html_": "called by notebooks",
    "__annotations__": "read by inspect",
    "__dir__": "called by dir",
    "__getattr__": "called by import: PEP 562",
    "__signature__": "read by inspect",
    "CACHE_DIR": "set for numba to read",
    "ClusterError": "part of the table of errors, raised from cluster.py on",
    "Loss": "what losses promise to passes: the protocol is for people",
    "InterruptedRun": "part of the table of errors, raised by the signal handler",
    "STORES": "read by the contract tests",
    "_n_features_out": "read by scikit-learn",
    "age": "a file that has another one has changed: compared as part of its record",
    "bits": "the signature of a numba intrinsic",
    "client_address": "the signature of socketserver",
    "close_connection": "read by http.server",
    "daemon_threads": "read by socketserver",
    "deep": "the signature of scikit-learn's get_params",
    "disable_nagle_algorithm": "read by http.server, as the protocol's version",
    "BucketOnDisk": "named in a setting of pyiceberg",
    "LongDescription": "called by hatchling",
    "_location": "read by pyiceberg",
    "align": "read by llvmlite",
    "do_DELETE": "called by http.server, as the four others",
    "do_GET": "called by http.server",
    "do_HEAD": "called by http.server",
    "do_POST": "called by http.server",
    "do_PUT": "called by http.server",
    "handle_error": "called by socketserver",
    "log_message": "called by http.server",
    "protocol_version": "read by http.server",
    "request_queue_size": "read by socketserver",
    "seekable": "read by pyarrow",
    "verbose": "a parameter of estimators, read by its name",
    "context": "the signature of a numba intrinsic",
    "merge": "the cluster's part of the solver protocol",
    "format_commands": "called by click",
    "format_epilog": "called by click",
    "format_options": "called by click",
    "gid": "read by tarfile, as the other three facts of an entry",
    "gname": "read by tarfile",
    "get_command": "called by click",
    "get_n_splits": "called by scikit-learn",
    "list_commands": "called by click",
    "handle_data": "called by html.parser, as the three others",
    "handle_endtag": "called by html.parser",
    "handle_startendtag": "called by html.parser",
    "handle_starttag": "called by html.parser",
    "invalid_row_handler": "read by pyarrow",
    "on_fit_task_begin": "called by scikit-learn, as the two others of a callback",
    "on_fit_task_end": "called by scikit-learn",
    "on_start": "called by numba, as the end of what it starts",
    "on_end": "called by numba",
    "setup": "called by scikit-learn",
    "pytestmark": "read by pytest",
    "pytest_collection_finish": "called by pytest, as all hooks of a plugin",
    "pytest_collection_modifyitems": "called by pytest",
    "pytest_runtest_logreport": "called by pytest",
    "pytest_runtest_logstart": "called by pytest",
    "pytest_runtest_protocol": "called by pytest",
    "pytest_runtestloop": "called by pytest",
    "readable": "read by io",
    "readinto": "called by h5py",
    "teardown": "called by hypothesis",
    "truncate": "called by h5py",
    "mtime": "read by tarfile",
    "uid": "read by tarfile",
    "writable": "read by io",
    "use_threads": "a switch of numcodecs",
    "versions": "a field of the manifest: written for people",
}
DECORATORS = [
    "@pytest.*",
    "@given",
    "@overload*",
    "@click.*",
    "@main.*",
    "@*.command*",
    "@compiled*",
    "@intrinsic*",
    "@*.fixture*",
    "@rule*",
    "@invariant*",
    "@initialize*",
]


def registered() -> set[str]:
    """Attributes that are named in strings, as registries and entry points name them."""
    files = [*Path("streamsvm").rglob("*.py"), Path("pyproject.toml")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return {name for text in texts for name in re.findall(r'"streamsvm[\w.]*:(\w+)"', text)}


def fixtures() -> set[str]:
    """Names of pytest's fixtures: a test that names one uses it, whatever its body does."""
    texts = [path.read_text(encoding="utf-8") for path in Path("tests").rglob("*.py")]
    return {name for text in texts for name in re.findall(r"@pytest\.fixture[^\n]*\ndef (\w+)", text)}


def main() -> int:
    used = registered() | fixtures() | ALLOWED.keys()
    search = Vulture(ignore_names=sorted(used), ignore_decorators=DECORATORS)
    # what sphinx reads by name is left out
    search.scavenge(PLACES, exclude=["*/tools/docs/conf.py"])
    found = search.get_unused_code(min_confidence=60)
    for item in found:
        print(item.get_report())
    print(f"dead code: {len(found)} found" if found else "dead code: none")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
