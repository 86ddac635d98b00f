"""Arrays saved by numpy: what is accepted, and the malformed corpus case by case."""

from __future__ import annotations

import gzip
import io
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import StreamSVMError
from streamsvm.store.sources import SourceOptions, npy, open_source

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([1, -1, 1, -1])


def packed(values: Any, **options: Any) -> bytes:
    """The bytes of an npy file."""
    buffer = io.BytesIO()
    np.save(buffer, values, **options)
    return buffer.getvalue()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(content: Any, name: str = "X.npy") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else packed(content))
        return path

    return make


def read(*paths: Path, **options: Any) -> tuple[Any, Any, Any]:
    """All rows, all labels, and the source."""
    source = open_source(paths, SourceOptions(**options))
    batches = list(source.batches())
    values = np.concatenate([b.X.values for b in batches])
    return values, np.concatenate([b.labels for b in batches]), source


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u8", "i4", "?"])
def test_npy_numbers_of_any_type(write: Callable[..., Path], dtype: str) -> None:
    """B06 and the harmless half of B09."""
    values, labels, source = read(write(X.astype(dtype)), labels=write(Y, "y.npy"))
    assert np.array_equal(values, X.astype(dtype).astype(np.float32))
    assert (labels.tolist(), source.columns, source.sources[0].rows) == (Y.tolist(), 3, 4)


@pytest.mark.parametrize(("label", "expected"), [("first", X[:, 0]), ("last", X[:, 2])])
def test_npy_label_in_a_column(write: Callable[..., Path], label: str, expected: Any) -> None:
    values, labels, _ = read(write(X), label=label)
    assert labels.tolist() == expected.tolist()
    assert values.shape == (4, 2)


def test_npy_text_labels(write: Callable[..., Path]) -> None:
    assert read(write(X), labels=write(np.array(["a", "b", "a", "b"]), "y.npy"))[1].tolist() == ["a", "b", "a", "b"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npy_npz(tmp_path: Path, save: Callable[..., None]) -> None:
    save(tmp_path / "a.npz", X=X, y=Y)
    values, labels, _ = read(tmp_path / "a.npz")
    assert (values.tolist(), labels.tolist()) == (X.tolist(), Y.tolist())


def test_npy_many_slices(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy, "SLICE_BYTES", 24)
    values, labels, _ = read(write(gzip.compress(packed(X))), labels=write(Y[:, None], "y.npy"))
    assert (values.tolist(), labels.tolist()) == (X.tolist(), Y.tolist())


def test_npy_prediction_with_and_without_label_column(write: Callable[..., Path]) -> None:
    encoding = read(write(X), label="last")[2].encoding()
    from_labeled, labels, _ = read(write(X), encoding=encoding, label="last")
    from_plain, none, _ = read(write(X[:, :2]), encoding=encoding)
    assert from_labeled.tolist() == from_plain.tolist()
    assert (len(labels), len(none)) == (4, 0)


def header(text: str) -> bytes:
    """An npy file of 32 bytes of data with any text as header."""
    raw = text.encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + len(raw).to_bytes(4, "little") + raw + bytes(32)


def described(descr: str, shape: str) -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}")


REFUSED: dict[str, tuple[Any, str]] = {
    "B01": (packed(X)[:-8], "E-TRUNCATED"),
    "B02": (packed(X) + bytes(8), "E-TRUNCATED"),
    "B03": (described("'<f4'", "(2000000000000, 1)"), "E-TRUNCATED"),
    "B03 overflow": (described("'<f8'", f"({2**62}, {2**62})"), "E-TRUNCATED"),
    "B04": (packed(np.array([[object()]]), allow_pickle=True), "E-SECURITY"),
    "B05": (np.asfortranarray(X), "E-LAYOUT"),
    "B07 1-D": (X[0], "E-SHAPE"),
    "B07 3-D": (X[None], "E-SHAPE"),
    "B07 0-D": (np.float32(1), "E-SHAPE"),
    "B07 no rows": (X[:0], "E-SHAPE"),
    "B07 no columns": (X[:, :0], "E-SHAPE"),
    "B07 negative": (described("'<f4'", "(-1, 4)"), "E-SHAPE"),
    "B09 complex": (X.astype("c8"), "E-DTYPE"),
    "B09 time": (X.astype("M8[s]"), "E-DTYPE"),
    "B09 structured": (np.zeros((2, 2), [("a", "f4")]), "E-DTYPE"),
    "B09 range": (np.full((2, 2), 1e39), "E-RANGE"),
    "B10 code": (header("__import__('os').abort()"), "E-PARSE"),
    "B10 parentheses": (header("(" * 1_000_000), "E-PARSE"),
    "B10 some parentheses": (header("(" * 9000), "E-PARSE"),
    "text": (np.array([["a"]]), "E-DTYPE"),
    "nan": (np.array([[1, np.nan]]), "E-NONFINITE"),
    "cut header": (packed(X)[:20], "E-PARSE"),
}


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED)
def test_npy_refuses_a_malformed_array(write: Callable[..., Path], content: Any, code: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(StreamSVMError) as caught:
        read(write(content), label="none")
    assert caught.value.code == code
    assert "X.npy" in caught.value.message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 64 * 1024


def test_npy_labels_of_another_length(write: Callable[..., Path]) -> None:
    """B08."""
    with pytest.raises(StreamSVMError, match="4 rows") as caught:
        read(write(X), labels=write(Y[:3], "y.npy"))
    assert caught.value.code == "E-ROWS"


def test_npy_labels_of_several_arrays_are_in_one_file(write: Callable[..., Path], tmp_path: Path) -> None:
    rows = np.arange(36, dtype=np.float16).reshape(12, 3)
    arrays = [write(part, f"part-{k}.npy") for k, part in enumerate(np.split(rows, [5, 6]))]
    y = write(np.arange(12) % 3, "y.npy")
    for paths in (arrays, [tmp_path]):
        values, labels, source = read(*paths, labels=y)
        assert (values == rows).all()
        assert labels.tolist() == (np.arange(12) % 3).tolist()
        assert source.dtype == "float16"
    with pytest.raises(
        StreamSVMError, match=r"2 arrays from .*part-0.npy on has 6 rows, .*y.npy the shape \(12,\)"
    ) as caught:
        read(*arrays[:2], labels=y)
    assert caught.value.code == "E-ROWS"


def test_npy_labels_of_arrays_whose_order_is_not_certain_are_refused(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    arrays = [write(X + k, f"arrays/part-{k}.npy") for k in (2, 10)]
    y = write(np.repeat(Y, 2), "y.npy")
    with pytest.raises(StreamSVMError, match=r"part-10.npy comes before .*part-2.npy: in which order are the labels"):
        read(folder, labels=y)
    assert (read(*arrays, labels=y)[0][:4] == X + 2).all()
    assert read(folder, label="last")[0].shape == (8, 2)


def test_npy_asks_where_the_labels_are(write: Callable[..., Path]) -> None:
    with pytest.raises(StreamSVMError) as caught:
        read(write(X))
    assert caught.value.exit_code == 2


class TestNpz:
    def test_npy_npz_without_X_is_refused(self, tmp_path: Path) -> None:
        """B11: nothing outside the names we know is looked at."""
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("../X.npy", packed(X))
        with pytest.raises(StreamSVMError) as caught:
            read(tmp_path / "a.npz")
        assert caught.value.code == "E-FORMAT"

    def test_npy_refuses_a_damaged_archive(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", X=np.ones((1000, 10), np.float32), y=np.ones(1000))
        content = bytearray((tmp_path / "a.npz").read_bytes())
        content[5000] ^= 1
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(StreamSVMError) as caught:
            read(tmp_path / "a.npz")
        assert caught.value.code == "E-CRC"

    def test_npy_refuses_a_cut_file(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", X=X, y=Y)
        content = (tmp_path / "a.npz").read_bytes()
        (tmp_path / "a.npz").write_bytes(content[:-30])
        with pytest.raises(StreamSVMError) as caught:
            read(tmp_path / "a.npz")
        assert caught.value.code == "E-TRUNCATED"


class TestIdx:
    def test_npy_images_become_rows(self, write: Callable[..., Path]) -> None:
        images = np.arange(24, dtype=np.uint8)
        X = write(gzip.compress(b"\0\0\x08\x03" + np.array([2, 3, 4], ">i4").tobytes() + images.tobytes()))
        labels = write(b"\0\0\x08\x01" + np.array([2], ">i4").tobytes() + bytes([7, 3]), "y")
        values, found, source = read(X, labels=labels)
        assert (values.tolist(), found.tolist()) == (images.reshape(2, 12).tolist(), [7, 3])
        assert source.columns == 12

    @pytest.mark.parametrize("cut", [6, 11, 19, 20])
    def test_npy_refuses_a_cut_file(self, write: Callable[..., Path], cut: int) -> None:
        content = b"\0\0\x08\x02" + np.array([3, 3], ">i4").tobytes() + bytes(9)
        with pytest.raises(StreamSVMError) as caught:
            read(write(content[:cut]), label="last")
        assert caught.value.code == ("E-PARSE" if cut < 12 else "E-TRUNCATED")

    @pytest.mark.data
    def test_npy_mnist(self, data_file: Callable[[str], Path]) -> None:
        names = "mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"
        values, labels, _ = read(data_file(names[0]), labels=data_file(names[1]))
        assert values.shape == (10_000, 784)
        assert (labels == 7).sum() == 1028
