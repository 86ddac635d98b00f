"""What ingest does with rows that are not as they should be, and with their order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import DataError, MissingError, StreamSVMError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import CSR, Dense, in_layout
from streamsvm.store import open_store, read_chunk
from streamsvm.store.format import manifest as manifests
from streamsvm.store.sources import open_source, options_from
from streamsvm.store.write.shuffle import Spool
from tests.axes import each_value


def run(root: Path, content: bytes | None = None, name: str = "a.csv", **options: Any) -> Any:
    if content is not None:
        (root / name).write_bytes(content)
    values: dict[str, Any] = {"sources": (root / name,), "store": root / "s.zarr", "overwrite": True, "label": "y"}
    return ingest(IngestJob(**(values | options)))


def contents(path: Path) -> tuple[Any, list[str]]:
    """All rows dense, and their labels."""
    store = open_store(path)
    buffers, X, labels = store.buffers(), [], []
    for chunk in range(len(store.layout.chunks)):
        found = read_chunk(store, chunk, buffers)
        X.append(in_layout(found.X, sparse=False, columns=store.layout.columns).values.copy())
        labels += [store.layout.classes[code] for code in found.codes]
    return np.concatenate(X), labels


def code_of(*arguments: Any, **options: Any) -> str:
    with pytest.raises(StreamSVMError) as caught:
        run(*arguments, **options)
    assert caught.value.hint
    return caught.value.code


# -- order -----------------------------------------------------------------------------------------------------------


def numbered(rows: int) -> bytes:
    return b"a,y\n" + b"".join(b"%d,%s\n" % (i, b"pq"[i >= rows // 2 :][:1]) for i in range(rows))


def test_ingest_shuffle_depends_on_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = contents(run(tmp_path, numbered(30_000), shuffle=True, seed=3).store)[0]
    monkeypatch.setattr("streamsvm.store.write.shuffle.RUN_BYTES", 50_000)
    assert np.array_equal(contents(run(tmp_path, shuffle=True, seed=3, chunk_bytes=4096).store)[0], first)
    assert not np.array_equal(contents(run(tmp_path, shuffle=True, seed=4).store)[0], first)
    assert sorted(p.name for p in tmp_path.iterdir() if "shuffle" in p.name) == []


def ids_of(numbers: Any, kind: str) -> Any:
    """Ids of rows: none, large numbers, or texts of different lengths, an empty one among them."""
    if kind == "text":
        return np.array(["ä" * (int(k) % 4) + str(int(k)) * bool(k) for k in numbers], dtype=object)
    return numbers.astype(np.int64) + 10**17 if kind else None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    sparse=st.booleans(),
    weighted=st.booleans(),
    named=st.sampled_from(["", "numbers", "text"]),
)
def test_ingest_spool_keeps_rows_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], sparse: bool, weighted: bool, named: str
) -> None:
    monkeypatch.setattr("streamsvm.store.write.shuffle.RUN_BYTES", 700)
    spool, at = Spool(tmp_path / "spool", 1), 0
    for size in sizes:
        number = np.arange(at, at + size, dtype=np.float32)
        X: Any = Dense(np.column_stack([number, number + 0.5]))
        if sparse:
            lengths = number.astype(int) % 3
            indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            X = CSR(np.repeat(number, lengths), np.repeat(number, lengths).astype(np.int32), indptr)
        spool.append(X, number.astype(np.int32), number if weighted else None, ids_of(number, named))
        at += size
    seen = []
    for piece, ids in spool.drain():
        seen += piece.codes.tolist()
        expected = ids_of(piece.codes, named)
        assert (ids is None and expected is None) or ids.tolist() == expected.tolist()
        if isinstance(piece.X, Dense):
            assert np.array_equal(piece.X.values[:, 0], piece.codes)
            assert np.array_equal(piece.X.values[:, 1], piece.codes + 0.5)
        else:
            assert np.array_equal(np.diff(piece.X.indptr), piece.codes % 3)
            assert np.array_equal(piece.X.data, np.repeat(piece.codes, piece.codes % 3))
            assert np.array_equal(piece.X.indices, np.repeat(piece.codes, piece.codes % 3))
        assert piece.weight is None or np.array_equal(piece.weight, piece.codes)
    spool.close()
    assert sorted(seen) == list(range(at))


# -- missing values --------------------------------------------------------------------------------------------------

HOLES = b"a,b,y\n1,,p\n3,4,q\n,6,p\n2,2,q\n"


def test_ingest_missing_values_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 2, column 'b'.*missing") as caught:
        run(tmp_path, HOLES)
    assert caught.value.code == "E-MISSING"
    assert "--missing" in caught.value.hint


@each_value(
    (
        "policy, expected",
        [
            ("mean", [[1, 4], [3, 4], [2, 6], [2, 2]]),
            ("zero", [[1, 0], [3, 4], [0, 6], [2, 2]]),
            ("indicator", [[1, 0, 0, 1], [3, 4, 0, 0], [0, 6, 1, 0], [2, 2, 0, 0]]),
        ],
    ),
    ("kind", ["csv", "parquet", "npy"]),
)
def test_ingest_missing_values_are_filled(tmp_path: Path, policy: str, expected: list[list[float]], kind: str) -> None:
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    path = tmp_path / "a.csv"
    path.write_bytes(HOLES)
    options: dict[str, Any] = {}
    if kind == "parquet":
        pq.write_table(pacsv.read_csv(path), tmp_path / "a.parquet")
    elif kind == "npy":
        np.save(tmp_path / "a.npy", np.array([[1, np.nan, 0], [3, 4, 1], [np.nan, 6, 0], [2, 2, 1]]))
        options = {"label": "last"}
    result = run(tmp_path, name=f"a.{kind}", missing=policy, **options)
    assert contents(result.store)[0].tolist() == expected
    assert result.notices == ("2 missing values filled",)
    encoding = open_store(result.store).facts["encoding"]
    (tmp_path / "b").mkdir()
    other = tmp_path / "b" / f"a.{kind}"
    other.write_bytes((tmp_path / f"a.{kind}").read_bytes())
    again = open_source([other], options_from(encoding, missing=policy))
    assert np.concatenate([b.X.values for b in again.batches()]).tolist() == expected


def test_ingest_missing_categories_are_none_of_the_known(tmp_path: Path) -> None:
    result = run(tmp_path, b"a,t,y\n1,u,p\n2,,q\n3,v,q\n", missing="zero", categorical=("t",))
    assert contents(result.store)[0].tolist() == [[1, 1, 0], [2, 0, 0], [3, 0, 1]]


# -- text in columns, labels that are words ------------------------------------------------------------------------


def test_ingest_hashed_columns(tmp_path: Path) -> None:
    rows = b"".join(b"%d,w%d,v%d,%d\n" % (i, i % 50, i % 7, i % 2) for i in range(700))
    result = run(tmp_path, b"a,t,u,y\n" + rows, hash_bits=12)
    X, _ = contents(result.store)
    assert (result.sparse, result.columns) == (True, 1 + (1 << 12))
    assert np.array_equal(X[:, 0], np.arange(700))
    assert np.array_equal(X[:350, 1:], X[350:, 1:])  # the same words, the same columns
    assert (np.abs(X[:, 1:]).sum(axis=1) <= 2).all()
    assert {-1.0, 1.0} <= set(X[:, 1:].ravel().tolist())
    encoding = open_store(result.store).facts["encoding"]
    again = open_source([tmp_path / "a.csv"], options_from(encoding))
    assert np.array_equal(in_layout(next(again.batches()).X, sparse=False, columns=again.columns).values, X)


def test_ingest_hashes_are_for_ever() -> None:
    from streamsvm.store.sources.text_features import text_hash

    assert text_hash("t", "w0") == 0xB279EC32B1A932E9


# -- lines that cannot be read ---------------------------------------------------------------------------------------


def test_ingest_bad_lines_of_csv(tmp_path: Path) -> None:
    rows = [b"%d,%d,%d\n" % (i, i % 3, i % 2) for i in range(200_000)]
    rows[7], rows[100], rows[150_000], rows[150_001] = b",1,1\n", b"1,2\n", b"x,2,1\n", b"nan,2,1\n"
    result = run(tmp_path, b"a,b,y\n" + b"".join(rows), on_bad_line="skip")
    X, labels = contents(result.store)
    assert len(X) == 199_996
    assert all(label == str(int(x) % 2) for x, label in zip(X[:, 0], labels, strict=True))
    lines = [line.split("\t")[1:3] for line in (tmp_path / "s.zarr.rejects").read_text().splitlines()[1:]]
    assert lines == [["9", "E-MISSING"], ["102", "E-ROWLEN"], ["150002", "E-PARSE"], ["150003", "E-MISSING"]]


def test_ingest_line_feeds_in_quotes(tmp_path: Path) -> None:
    """C06, C05."""
    rows = b"".join(b'%d,"x\ny%d",%d\n' % (i, i % 3, i % 2) for i in range(100_000))
    options: dict[str, Any] = {"categorical": ("t",), "multiline": True}
    result = run(tmp_path, b"a,t,y\n" + rows, **options)
    assert (result.rows, result.columns) == (100_000, 4)
    assert code_of(tmp_path, categorical=("t",)) == "E-QUOTE"
    assert code_of(tmp_path, b"a,t,y\n" + rows + b'1,"x,1\n' + b"1,x,1\n" * 300_000, **options) == "E-QUOTE"
    assert code_of(tmp_path, b'a,t,y\n1,"u\nv",1\nx,"u\nv",1\n2,u,0\n', **options) == "E-PARSE"


# -- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.svm"])
def test_ingest_mixed_line_ends(tmp_path: Path, name: str) -> None:
    """C32."""
    lines = [b"a,y", b"1,p", b"2,q", b"3,q"] if name == "a.csv" else [b"1 1:1", b"2 1:1", b"1 1:3", b"2 2:1"]
    mixed = b"\r\n".join(lines[:2]) + b"\r\n" + b"\n".join(lines[2:]) + b"\n"
    assert any("CRLF" in notice for notice in run(tmp_path, mixed, name=name).notices)
    assert not any("CRLF" in notice for notice in run(tmp_path, b"\r\n".join([*lines, b""]), name=name).notices)


# -- several files ---------------------------------------------------------------------------------------------------


def test_ingest_directories_and_patterns(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(3):
        (folder / f"part-{i}.csv").write_bytes(b"a,y\n%d,p\n%d,q\n" % (2 * i, 2 * i + 1))
    (folder / "_SUCCESS").touch()
    for source in (folder, folder / "part-*.csv", tmp_path / "**" / "*.csv"):
        result = run(tmp_path, sources=(source,))
        assert contents(result.store)[0][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(MissingError, match="nothing is called"):
        run(tmp_path, sources=(folder / "*.txt",))


# -- how it is stored ------------------------------------------------------------------------------------------------


def test_ingest_name_of_a_store_says_its_format(tmp_path: Path) -> None:
    digests = set()
    for name, options in {"s.zarr": {}, "s.h5": {}, "t": {"store_format": "hdf5"}}.items():
        result = run(tmp_path, numbered(5000), store=tmp_path / name, test_fraction=0.2, **options)
        digests.add(open_store(result.store).digest)
        expected = "zarr" if name == "s.zarr" else "hdf5"
        assert manifests.read(result.store).store == expected
    assert len(digests) == 1


@pytest.mark.parametrize("compression", ["auto", "lz4"])
def test_ingest_compressed_stores(tmp_path: Path, compression: str) -> None:
    import zarr

    rows = b"".join(b"%d %s\n" % (i % 2, b" ".join(b"%d:1" % j for j in range(1 + i % 5, 100, 5))) for i in range(9000))
    plain = run(tmp_path, rows, name="a.svm", chunk_bytes=1 << 16)
    digest, X = open_store(plain.store).digest, contents(plain.store)[0]
    size = sum(p.stat().st_size for p in plain.store.rglob("*"))
    packed = run(tmp_path, name="a.svm", chunk_bytes=1 << 16, compression=compression)
    store = open_store(packed.store)
    assert manifests.read(packed.store).packed == {"X/data": "lz4", "X/indices": "lz4"}
    assert store.digest == digest
    assert np.array_equal(contents(packed.store)[0], X)
    assert sum(p.stat().st_size for p in packed.store.rglob("*")) < size / 3
    group: Any = zarr.open_group(packed.store, mode="r")
    assert np.array_equal(group["X/data"][:], np.ones(group["X/data"].shape))
    unit = max((packed.store / "X" / "indices").glob("c.*"))
    raw = unit.read_bytes()
    unit.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
    with pytest.raises(DataError) as caught:
        contents(packed.store)
    assert caught.value.code == "E-CRC"


@pytest.mark.parametrize(
    "options", [{"text": ("t=words",), "text_bits": 6}, {"columns_as": ("t=hash",)}, {"missing": "mean"}]
)
def test_ingest_workers_make_the_same_columns_of_every_file(tmp_path: Path, options: dict[str, Any]) -> None:
    names = []
    for part in range(3):
        rows = "".join(
            f"{k if k % 9 else ''},word{k * 7 % 40} of {part},{k % 2}\n" for k in range(part * 50, part * 50 + 50)
        )
        names.append(tmp_path / f"{part}.csv")
        names[-1].write_text(("a,t,y\n" + rows).removesuffix("\n"))
    settings: dict[str, Any] = {"label": "y", "missing": "zero", "allow_no_final_newline": True} | options
    job = IngestJob(sources=tuple(names), store=tmp_path / "here.zarr", **settings)
    ingest(job)
    ingest(replace(job, store=tmp_path / "there.zarr"), executor=SerialExecutor())
    assert open_store(tmp_path / "here.zarr").digest == open_store(tmp_path / "there.zarr").digest
