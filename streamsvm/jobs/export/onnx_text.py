"""Add hashed columns of a table to an ONNX graph: whole values ('hash'), words, and runs of characters.

    texts (n, H) -> code points (n, H, L) -> hashes, int64 -> feature columns and signs -> their part of f (n, k)

The hashes are those of ``store.sources.text_features``, computed in the graph for any text: there is no list of known
values. ONNX has no operator for the characters of a text, so ``Tokenizer`` of onnxruntime (com.microsoft) splits them,
and ``LabelEncoder`` has a table of their code points: of all characters up to U+FFFF, and of the emoji. Any other
character counts as U+FFFD. Arithmetic is modulo 2^64: int64 is added and multiplied, uint64 is shifted.

A whole value is hashed by BLAKE2b with 8 bytes (RFC 7693), as 'NAME=VALUE' in UTF-8. Its state is 16 words, kept as four
rows of four, a, b, c, d; a round mixes the columns, and then the diagonals, by

    a += b + x;  d = (d ^ a) >>> 32;  c += d;  b = (b ^ c) >>> 24;
    a += b + y;  d = (d ^ a) >>> 16;  c += d;  b = (b ^ c) >>> 63.

The hash of a word or run of characters c_0 ... c_(l-1) is mix(seed ^ sum_i mix(c_i + B) B^i), of a run with ^ l. With
the prefix sums P_j = sum_(i < j) mix(c_i + B) B^i of a text, a word from s to e has the sum (P_(e+1) - P_s) B^(-s), as B
is odd and so has an inverse.

The terms of a text that fall on one feature column add up to a count c, and the value of the column is
sign(c) (1 + ln |c|) idf / length. In the graph every term has that value, divided by the number m of the terms of its
column: c = E s and m = E 1, where E_ij says whether the terms i and j share a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from streamsvm.jobs.export.graph_builder import DOUBLE, FLOAT, INT64, RUNTIME_DOMAIN, UINT64, GraphBuilder
from streamsvm.jobs.export.table import RawTable
from streamsvm.rows import Float64
from streamsvm.store.sources.schema import HASHED, TEXT, WORDS, Column
from streamsvm.store.sources.text_features import BASE, run_lengths, text_hash, to_lower_case, word_characters

MODULUS, MASK = 1 << 64, (1 << 64) - 1
REPLACEMENT = 0xFFFD
"""The code point that stands for characters without one in the table."""
EMOJI = range(0x1F000, 0x1FB00)
SURROGATES = range(0xD800, 0xE000)
LARGEST_INDEX = np.iinfo(np.int64).max
BLAKE_BLOCK, BLAKE_WORDS, BLAKE_ROUNDS = 128, 16, 12
"""The bytes and the words of a block of BLAKE2b, and its rounds."""
BLAKE_START = (
    *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
    *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
)
BLAKE_PARAMETERS = 0x01010008
"""No key, one sequential hash, 8 bytes long."""
BLAKE_ORDER = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
"""The order of the words of a block in each round; the last two rounds repeat the first two."""
POWERS = 1 << 10
"""Powers B^i are products of an entry of each of two tables of so many entries: i < 2^20."""
BLANKS = tuple(map(ord, "\t\n\f\r "))
"""What ``\\s`` means in the regular expressions of pyarrow."""


def add_text_effects(graph: GraphBuilder, table: RawTable, weights: Float64) -> Iterator[str]:
    """Yield the parts of the decision values (n, k) that are due to hashed columns and columns of text; none without
    such columns.

    ``weights``: the weights of the model (k, d + 1). The columns are inputs of text (n, 1).
    """
    columns = [(first, column) for first, column in table.columns_with_places() if column.kind in (HASHED, TEXT)]
    if not columns:
        return
    texts = columns[0][1].name
    if len(columns) > 1:
        texts = graph.add("Concat", *(column.name for _, column in columns), axis=1)
    is_present = graph.encode(texts, dict.fromkeys(("", *table.words.added), 0), 1)
    codes = _add_code_points(graph, texts)
    hashed = [k for k, (_, column) in enumerate(columns) if column.kind == HASHED]
    if hashed:
        own, bits = table.schema.own_width, table.schema.hash_bits
        chosen = graph.constant(np.array(hashed))
        names = [columns[k][1].name for k in hashed]
        hashes = _add_blake2b(graph, graph.add("Gather", codes, chosen, axis=1), names)
        signs = graph.add(
            "Mul", _add_signs(graph, hashes), _cast(graph, DOUBLE, graph.add("Gather", is_present, chosen, axis=1))
        )
        yield _add_weighted(graph, weights[:, own : own + (1 << bits)], _add_places(graph, hashes, bits), signs)
    for k, (first, column) in enumerate(columns):
        if column.kind == TEXT:
            own_codes = _add_trimmed(graph, graph.add("Gather", codes, graph.scalar(k), axis=1))
            own_present = graph.add("Gather", is_present, graph.constant(np.array([k])), axis=1)
            own_weights = weights[:, first : first + column.width]
            idf = table.schema.documents[column.name].idf()
            yield _add_text_effect(graph, column, (own_codes, own_present), own_weights, idf)


# -- characters --------------------------------------------------------------------------------------------------------


def _add_code_points(graph: GraphBuilder, texts: str) -> str:
    """Add the code points (n, H, L) int64 of texts (n, H); 0 after the end of a text. L is 1 at least."""
    from onnx import TensorProto, helper

    split: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": "", "separators": [""]}
    characters = graph.add("Tokenizer", texts, domain=RUNTIME_DOMAIN, **split)
    graph.declared.append(helper.make_tensor_value_info(characters, TensorProto.STRING, [None, None, None]))
    codes = graph.encode(characters, {"": 0} | _code_points(), REPLACEMENT)
    return graph.add("Pad", codes, graph.constant(np.array([0, 0, 0, 0, 0, 1])), _int64(graph, 0))


def _add_trimmed(graph: GraphBuilder, codes: str) -> str:
    """Add the code points (n, L) of the texts of one column, with L the length of its longest text, or 1."""
    is_character = _cast(graph, INT64, graph.add("Greater", codes, _int64(graph, 0)))
    lengths = graph.add("ReduceSum", is_character, _int64(graph, 1))
    longest = graph.add("Max", graph.add("ReduceMax", lengths, keepdims=0), _int64(graph, 1))
    return _add_slice(graph, codes, 0, longest, 1)


@lru_cache(1)
def _code_points() -> dict[str, int]:
    """Return the code point of each character that the graph knows."""
    return {chr(code): code for code in (*range(1, 0x10000), *EMOJI) if code not in SURROGATES}


@lru_cache(1)
def _lower_case_steps() -> dict[int, int]:
    """Return what to add to the code point of a character to get that of its lower case, where that is not 0."""
    characters = list(_code_points())
    pairs = zip(map(ord, characters), map(ord, to_lower_case(characters)), strict=True)
    return {code: other - code for code, other in pairs if other != code}


# -- integers modulo 2^64 ----------------------------------------------------------------------------------------------


def _as_signed(value: int) -> int:
    """Return the int64 with the bits of a number modulo 2^64."""
    return (value + (MODULUS >> 1)) % MODULUS - (MODULUS >> 1)


def _int64(graph: GraphBuilder, value: int) -> str:
    return graph.constant(np.array(_as_signed(value)))


def _cast(graph: GraphBuilder, kind: int, values: str) -> str:
    return graph.add("Cast", values, to=kind)


def _add_shift(graph: GraphBuilder, values: str, bits: int, direction: str) -> str:
    """Add uint64 values shifted by a number of bits, 'LEFT' or 'RIGHT'."""
    return graph.add("BitShift", values, graph.constant(np.array(bits, np.uint64)), direction=direction)


def _add_rotate(graph: GraphBuilder, values: str, bits: int) -> str:
    """Add int64 values rotated to the right by a number of bits."""
    unsigned = _cast(graph, UINT64, values)
    right, left = _add_shift(graph, unsigned, bits, "RIGHT"), _add_shift(graph, unsigned, 64 - bits, "LEFT")
    return _cast(graph, INT64, graph.add("BitwiseOr", right, left))


def _add_mixed_bits(graph: GraphBuilder, values: str) -> str:
    """Add the last step of splitmix64, as ``text_features``."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        shifted = _cast(graph, INT64, _add_shift(graph, _cast(graph, UINT64, values), shift, "RIGHT"))
        values = graph.add("Mul", graph.add("BitwiseXor", values, shifted), _int64(graph, factor))
    return values


def _add_powers(graph: GraphBuilder, base: int, exponents: str) -> str:
    """Add base^i modulo 2^64 for exponents i >= 0."""
    high = graph.add("Div", exponents, _int64(graph, POWERS))
    low = graph.add("Sub", exponents, graph.add("Mul", high, _int64(graph, POWERS)))
    parts = []
    for step, place in ((base, low), (pow(base, POWERS, MODULUS), high)):
        values = np.array([_as_signed(pow(step, i, MODULUS)) for i in range(POWERS)])
        parts.append(graph.add("Gather", graph.constant(values), place))
    return graph.add("Mul", *parts)


def _add_places(graph: GraphBuilder, hashes: str, bits: int) -> str:
    return graph.add("BitwiseAnd", hashes, _int64(graph, (1 << bits) - 1))


def _add_signs(graph: GraphBuilder, hashes: str) -> str:
    """Add the signs of hashes, float64."""
    is_negative = graph.add("Less", hashes, _int64(graph, 0))
    return graph.add("Where", is_negative, graph.constant(np.array(-1.0)), graph.constant(np.array(1.0)))


def _add_weighted(graph: GraphBuilder, weights: Float64, places: str, values: str) -> str:
    """Add sum_t values_t weights[:, places_t], (n, k); places and values are (n, T)."""
    chosen = graph.add("Gather", graph.constant(weights.T), places, axis=0)
    products = graph.add("Mul", chosen, graph.add("Unsqueeze", values, graph.constant(np.array([2]))))
    return graph.add("ReduceSum", products, graph.constant(np.array([1])), keepdims=0)


def _add_size(graph: GraphBuilder, values: str, axis: int) -> str:
    """Add the length of an axis, (1,) int64."""
    return graph.add("Gather", graph.add("Shape", values), graph.constant(np.array([axis])), axis=0)


def _add_range(graph: GraphBuilder, size: str) -> str:
    """Add 0, 1, ..., size - 1; ``size``: (1,) int64."""
    return graph.add("Range", graph.scalar(0), graph.add("Squeeze", size), graph.scalar(1))


def _add_zeros(graph: GraphBuilder, *sizes: str) -> str:
    """Add zeros, int64; each size is (1,) int64."""
    from onnx import numpy_helper

    zero = numpy_helper.from_array(np.zeros(1, np.int64))
    return graph.add("ConstantOfShape", graph.add("Concat", *sizes, axis=0), value=zero)


def _add_slice(graph: GraphBuilder, values: str, start: int, stop: int | str, axis: int) -> str:
    """Add a slice along an axis; ``stop``: a number, or the name of a value (1,) int64."""
    end = stop if isinstance(stop, str) else graph.constant(np.array([stop]))
    return graph.add("Slice", values, graph.constant(np.array([start])), end, graph.constant(np.array([axis])))


# -- whole values ------------------------------------------------------------------------------------------------------


def _add_blake2b(graph: GraphBuilder, codes: str, names: list[str]) -> str:
    """Add the hashes (n, H) int64 of 'NAME=text' for texts given as code points (n, H, L)."""
    prefixes = [f"{name}=".encode() for name in names]
    message, nbytes, blocks = _add_message(graph, codes, prefixes)
    states = [word ^ (BLAKE_PARAMETERS if k == 0 else 0) for k, word in enumerate(BLAKE_START)]
    start = graph.constant(np.array([_as_signed(word) for word in states]).reshape(8, 1, 1))
    rows, count = _add_size(graph, codes, 0), graph.constant(np.array([len(names)]))
    shape = graph.add("Concat", graph.constant(np.array([8])), rows, count, axis=0)
    last = graph.add("Div", graph.add("Sub", nbytes, _int64(graph, 1)), _int64(graph, BLAKE_BLOCK))
    body = _blake2b_step(f"{message}_block_", message, nbytes, last)
    is_on = graph.scalar(True)
    state = graph.add("Loop", blocks, is_on, graph.add("Expand", start, shape), body=body)
    return graph.add("Gather", state, graph.scalar(0), axis=0)


def _add_message(graph: GraphBuilder, codes: str, prefixes: list[bytes]) -> tuple[str, str, str]:
    """Add the words (blocks, 16, n, H) int64 of the prefixed texts in UTF-8, their lengths in bytes (n, H), and the
    number of blocks (1,), that of the longest text.

    A code point of l bytes is the first byte, which says l, and l - 1 bytes of 6 bits each. Bytes are scattered to their
    places; those that a character does not have go to a place after the end.
    """
    one = _int64(graph, 1)
    lengths = one
    for limit in (0x80, 0x800, 0x10000):
        is_longer = graph.add("GreaterOrEqual", codes, _int64(graph, limit))
        lengths = graph.add("Add", lengths, _cast(graph, INT64, is_longer))
    is_there = _cast(graph, INT64, graph.add("Greater", codes, _int64(graph, 0)))
    lengths = graph.add("Mul", lengths, is_there)
    sizes = np.array([len(prefix) for prefix in prefixes])
    nbytes = graph.add("ReduceSum", lengths, graph.constant(np.array([2])), keepdims=0)
    nbytes = graph.add("Add", nbytes, graph.constant(sizes))
    most = graph.add("Reshape", graph.add("ReduceMax", nbytes, keepdims=0), graph.constant(np.array([1])))
    blocks = graph.add("Div", graph.add("Add", most, _int64(graph, BLAKE_BLOCK - 1)), _int64(graph, BLAKE_BLOCK))
    capacity = graph.add("Mul", blocks, _int64(graph, BLAKE_BLOCK))

    fourth = graph.constant(np.array([3]))
    number = graph.constant(np.arange(4))
    length = graph.add("Unsqueeze", lengths, fourth)
    following = graph.add("Sub", graph.add("Sub", length, one), number)  # bytes of the character after this one
    is_byte = graph.add("GreaterOrEqual", following, _int64(graph, 0))
    powers = graph.add("Gather", graph.constant(64 ** np.arange(4)), graph.add("Max", following, _int64(graph, 0)))
    bits = graph.add("Div", graph.add("Unsqueeze", codes, fourth), powers)
    low = graph.add("Sub", bits, graph.add("Mul", graph.add("Div", bits, _int64(graph, 64)), _int64(graph, 64)))
    marks = graph.add("Gather", graph.constant(np.array([0, 0, 0xC0, 0xE0, 0xF0])), length)
    is_first = graph.add("Equal", number, _int64(graph, 0))
    values = graph.add("Where", is_first, graph.add("Add", bits, marks), graph.add("Add", low, _int64(graph, 0x80)))
    starts = graph.add("CumSum", lengths, _int64(graph, 2), exclusive=1)
    starts = graph.add("Add", starts, graph.constant(sizes[:, np.newaxis]))
    place = graph.add("Add", graph.add("Unsqueeze", starts, fourth), number)
    place = graph.add("Where", is_byte, place, capacity)
    flat = graph.constant(np.array([0, 0, -1]))
    rows, count = _add_size(graph, codes, 0), graph.constant(np.array([len(prefixes)]))
    zeros = _add_zeros(graph, rows, count, graph.add("Add", capacity, one))
    scattered = graph.add(
        "ScatterElements", zeros, graph.add("Reshape", place, flat), graph.add("Reshape", values, flat), axis=2
    )
    text_bytes = _add_slice(graph, scattered, 0, capacity, 2)

    before = np.zeros((1, len(prefixes), int(sizes.max())), np.int64)
    for k, prefix in enumerate(prefixes):
        before[0, k, : len(prefix)] = list(prefix)
    missing = graph.add("Sub", capacity, graph.constant(np.array([before.shape[2]])))
    pads = graph.add("Concat", graph.constant(np.zeros(5, np.int64)), missing, axis=0)
    text_bytes = graph.add("Add", text_bytes, graph.add("Pad", graph.constant(before), pads, _int64(graph, 0)))
    split = graph.constant(np.array([0, 0, -1, BLAKE_WORDS, 8]))
    text_bytes, words = graph.add("Reshape", text_bytes, split), ""
    for number_in_word in range(8):  # ReduceSum of onnxruntime rounds int64 to float64
        part = graph.add("Gather", text_bytes, graph.scalar(number_in_word), axis=4)
        part = graph.add("Mul", part, _int64(graph, 256**number_in_word))
        words = graph.add("Add", words, part) if words else part
    return graph.add("Transpose", words, perm=[2, 3, 0, 1]), nbytes, blocks


def _blake2b_step(prefix: str, message: str, nbytes: str, last: str) -> Any:
    """Return the graph of one turn of the loop over blocks: the state (8, n, H) after a block.

    ``prefix``: of the names in it. ``message``, ``nbytes``, ``last``: words, lengths and number of the last block of the
    texts, values of the surrounding graph. A text that has ended keeps its state.
    """
    from onnx import TensorProto, helper

    graph = GraphBuilder(prefix=prefix)
    block, is_on, state = f"{prefix}number", f"{prefix}on", f"{prefix}state"
    words = graph.add("Gather", message, block, axis=0)
    read = graph.add("Mul", graph.add("Add", block, _int64(graph, 1)), _int64(graph, BLAKE_BLOCK))
    is_last = graph.add("Where", graph.add("Equal", last, block), _int64(graph, MASK), _int64(graph, 0))
    first = graph.constant(np.array([0]))
    counter = graph.add("Unsqueeze", graph.add("Min", nbytes, read), first)
    zero = graph.add("Mul", counter, _int64(graph, 0))
    changes = graph.add("Concat", counter, zero, graph.add("Unsqueeze", is_last, first), zero, axis=0)
    constants = np.array([_as_signed(word) for word in BLAKE_START]).reshape(2, 4, 1, 1)
    a, b = _add_slice(graph, state, 0, 4, 0), _add_slice(graph, state, 4, 8, 0)
    c = graph.add("Add", graph.constant(constants[0]), graph.add("Mul", a, _int64(graph, 0)))
    d = graph.add("BitwiseXor", graph.constant(constants[1]), changes)
    for number in range(BLAKE_ROUNDS):
        order = BLAKE_ORDER[number % len(BLAKE_ORDER)]
        a, b, c, d = _add_half_round(graph, words, order[:8], (a, b, c, d))
        b, c, d = (_add_turned(graph, row, by) for row, by in ((b, 1), (c, 2), (d, 3)))
        a, b, c, d = _add_half_round(graph, words, order[8:], (a, b, c, d))
        b, c, d = (_add_turned(graph, row, by) for row, by in ((b, 3), (c, 2), (d, 1)))
    mixed = graph.add("Concat", graph.add("BitwiseXor", a, c), graph.add("BitwiseXor", b, d), axis=0)
    mixed = graph.add("BitwiseXor", state, mixed)
    new = graph.add("Where", graph.add("GreaterOrEqual", last, block), mixed, state)
    goes_on = graph.add("Identity", is_on)
    inputs = [
        helper.make_tensor_value_info(block, TensorProto.INT64, []),
        helper.make_tensor_value_info(is_on, TensorProto.BOOL, []),
        helper.make_tensor_value_info(state, TensorProto.INT64, [8, None, None]),
    ]
    outputs = [
        helper.make_tensor_value_info(goes_on, TensorProto.BOOL, []),
        helper.make_tensor_value_info(new, TensorProto.INT64, [8, None, None]),
    ]
    return helper.make_graph(graph.nodes, f"{prefix}blake2b", inputs, outputs, graph.constants)


def _add_half_round(
    graph: GraphBuilder, words: str, order: tuple[int, ...], state: tuple[str, str, str, str]
) -> tuple[str, str, str, str]:
    """Add the mixing of the four columns, or diagonals, of the state with eight words of a block."""
    a, b, c, d = state
    for chosen, by_d, by_b in ((order[0::2], 32, 24), (order[1::2], 16, 63)):
        more = graph.add("Gather", words, graph.constant(np.array(chosen)), axis=0)
        a = graph.add("Add", graph.add("Add", a, b), more)
        d = _add_rotate(graph, graph.add("BitwiseXor", d, a), by_d)
        c = graph.add("Add", c, d)
        b = _add_rotate(graph, graph.add("BitwiseXor", b, c), by_b)
    return a, b, c, d


def _add_turned(graph: GraphBuilder, row: str, by: int) -> str:
    """Add a row of four words, from word ``by`` on."""
    return graph.add("Gather", row, graph.constant((np.arange(4) + by) % 4), axis=0)


# -- words and runs of characters --------------------------------------------------------------------------------------


def _add_text_effect(
    graph: GraphBuilder, column: Column, texts: tuple[str, str], weights: Float64, idf: Float64
) -> str:
    """Add the part of the decision values (n, k) of a column of text.

    ``texts``: the code points (n, L), and 0 for missing texts (n, 1). ``weights``: those of the column, (k, 2^bits).
    """
    codes, is_present = texts
    steps = graph.encode(codes, _lower_case_steps(), 0)
    codes = graph.add("Add", codes, steps)
    seed = text_hash(column.name, TEXT)
    hashes, is_term = (_add_words if column.form == WORDS else _add_runs)(graph, column, codes, seed)
    is_term = _cast(graph, FLOAT, graph.add("Mul", is_term, is_present))
    signs = graph.add("Mul", _cast(graph, FLOAT, _add_signs(graph, hashes)), is_term)
    places = _add_places(graph, hashes, column.text_bits)
    second, third = graph.constant(np.array([1])), graph.constant(np.array([2]))
    shares = graph.add("Equal", graph.add("Unsqueeze", places, third), graph.add("Unsqueeze", places, second))
    parts = graph.add("Concat", *(graph.add("Unsqueeze", part, third) for part in (signs, is_term)), axis=2)
    sums = _cast(graph, DOUBLE, graph.add("MatMul", _cast(graph, FLOAT, shares), parts))
    counts, terms = (graph.add("Gather", sums, graph.scalar(k), axis=2) for k in range(2))
    one = graph.constant(np.array(1.0))
    logs = graph.add("Log", graph.add("Max", graph.add("Abs", counts), one))
    values = graph.add("Mul", graph.add("Sign", counts), graph.add("Add", logs, one))
    values = graph.add("Mul", values, graph.add("Gather", graph.constant(idf), places))
    share = graph.add("Div", _cast(graph, DOUBLE, is_term), graph.add("Max", terms, one))
    squares = graph.add("Mul", graph.add("Mul", values, values), share)
    length = graph.add("Sqrt", graph.add("ReduceSum", squares, second, keepdims=1))
    is_empty = graph.add("Equal", length, graph.constant(np.array(0.0)))
    values = graph.add("Div", values, graph.add("Where", is_empty, one, length))
    values = _cast(graph, DOUBLE, _cast(graph, FLOAT, values))  # as they are stored
    return _add_weighted(graph, weights, places, graph.add("Mul", values, share))


def _add_words(graph: GraphBuilder, _column: Column, codes: str, seed: int) -> tuple[str, str]:
    """Add the hashes of the words of texts (n, L) and, as 0 or 1, which of them are words, (n, T) int64 both; T is the
    number of words of the text with the most, or 1.
    """
    one, zero, size = _int64(graph, 1), _int64(graph, 0), _add_size(graph, codes, 1)
    place = graph.add("Min", codes, _int64(graph, 0xFFFF))
    in_word = _cast(graph, INT64, graph.add("Gather", graph.constant(word_characters()), place))
    inverse = pow(int(BASE), -1, MODULUS)
    number = _add_range(graph, size)
    mixed = _add_mixed_bits(graph, graph.add("Add", codes, _int64(graph, int(BASE))))
    parts = graph.add("Mul", graph.add("Mul", mixed, _add_powers(graph, int(BASE), number)), in_word)
    sums = graph.add("Pad", graph.add("CumSum", parts, one), graph.constant(np.array([0, 1, 0, 0])), zero)

    framed = graph.add("Pad", in_word, graph.constant(np.array([0, 1, 0, 1])), zero)
    before, after = _add_slice(graph, framed, 0, -2, 1), _add_slice(graph, framed, 2, LARGEST_INDEX, 1)
    is_first, is_last = (graph.add("Mul", in_word, graph.add("Sub", one, beside)) for beside in (before, after))
    word = graph.add("Sub", graph.add("CumSum", is_first, one), one)
    most = graph.add("Add", graph.add("Max", graph.add("ReduceMax", word, keepdims=0), zero), one)
    most = graph.add("Reshape", most, graph.constant(np.array([1])))
    zeros = _add_zeros(graph, _add_size(graph, codes, 0), graph.add("Add", most, one))
    numbers = graph.add("Add", graph.add("Mul", codes, zero), number)
    ends = []
    for is_end in (is_first, is_last):
        target = graph.add("Where", graph.add("Equal", is_end, one), word, most)
        ends.append(_add_slice(graph, graph.add("ScatterElements", zeros, target, numbers, axis=1), 0, most, 1))
    first, last = ends
    whole = graph.add(
        "Sub",
        graph.add("GatherElements", sums, graph.add("Add", last, one), axis=1),
        graph.add("GatherElements", sums, first, axis=1),
    )
    whole = graph.add("Mul", whole, _add_powers(graph, inverse, first))
    hashes = _add_mixed_bits(graph, graph.add("BitwiseXor", whole, _int64(graph, seed)))
    count = graph.add("ReduceSum", is_first, graph.constant(np.array([1])), keepdims=1)
    return hashes, _cast(graph, INT64, graph.add("Less", _add_range(graph, most), count))


def _add_runs(graph: GraphBuilder, column: Column, codes: str, seed: int) -> tuple[str, str]:
    """Add the hashes of the runs of characters of texts (n, L) and, as 0 or 1, which of them lie within the text, (n, T)
    int64 both.
    """
    framed, sizes = _add_framed(graph, codes)
    least, most = run_lengths(column)
    width = graph.add("Shape", framed)
    number = _add_range(graph, _add_size(graph, framed, 1))
    mixed = _add_mixed_bits(graph, graph.add("Add", framed, _int64(graph, int(BASE))))
    padded = graph.add("Pad", mixed, graph.constant(np.array([0, 0, 0, most - 1])), _int64(graph, 0))
    sums, hashes, are_runs = "", [], []
    for length in range(1, most + 1):
        stop = length - most if length < most else LARGEST_INDEX
        part = _add_slice(graph, padded, length - 1, stop, 1)
        part = graph.add("Mul", part, _int64(graph, pow(int(BASE), length - 1, MODULUS)))
        sums = graph.add("Add", sums, part) if sums else part
        if length >= least:
            salted = graph.add("BitwiseXor", sums, _int64(graph, seed ^ length))
            hashes.append(_add_mixed_bits(graph, salted))
            fits = graph.add("LessOrEqual", graph.add("Add", number, _int64(graph, length)), sizes)
            are_runs.append(graph.add("Expand", _cast(graph, INT64, fits), width))
    return graph.add("Concat", *hashes, axis=1), graph.add("Concat", *are_runs, axis=1)


def _add_framed(graph: GraphBuilder, codes: str) -> tuple[str, str]:
    """Add texts (n, L) with one blank for each run of blanks and one at both ends, (n, L + 2), and their lengths
    (n, 1).
    """
    one, zero, two = _int64(graph, 1), _int64(graph, 0), graph.constant(np.array([2]))
    is_blank = graph.encode(codes, dict.fromkeys(BLANKS, 1), 0)
    padded = graph.add("Pad", is_blank, graph.constant(np.array([0, 1, 0, 0])), zero)
    repeats = graph.add("Mul", is_blank, _add_slice(graph, padded, 0, -1, 1))
    is_kept = _cast(graph, INT64, graph.add("Greater", codes, zero))
    is_kept = graph.add("Mul", is_kept, graph.add("Sub", one, repeats))
    blank = _int64(graph, ord(" "))
    codes = graph.add("Where", graph.add("Equal", is_blank, one), blank, codes)
    width = graph.add("Add", _add_size(graph, codes, 1), two)
    place = graph.add("Where", graph.add("Equal", is_kept, one), graph.add("CumSum", is_kept, one), width)
    zeros = _add_zeros(graph, _add_size(graph, codes, 0), graph.add("Add", width, one))
    inner = _add_slice(graph, graph.add("ScatterElements", zeros, place, codes, axis=1), 0, width, 1)
    end = graph.add("Add", graph.add("ReduceSum", is_kept, graph.constant(np.array([1])), keepdims=1), one)
    number = _add_range(graph, width)
    is_end = graph.add("Or", graph.add("Equal", number, zero), graph.add("Equal", number, end))
    return graph.add("Where", is_end, blank, inner), graph.add("Add", end, one)
