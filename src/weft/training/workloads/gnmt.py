"""GNMT v2, the translator of LSTMs: as NVIDIA's DeepLearningExamples build it, with WMT16's vocabulary."""

from __future__ import annotations

from weft.errors import InputError
from weft.training.workloads.operators import Operator, Product, embedding, linear, lstm, pointwise
from weft.training.workloads.workload import Workload

_HIDDEN = 1024
_VOCABULARY = 32_320


def gnmt(layers: int = 8, steps: int = 50) -> Workload:
    """GNMT: an encoder whose first layer reads both ways, a decoder whose first layer attends to it.

    Parameters
    ----------
    layers
        Of the encoder, and of the decoder.
    steps
        Words of a sentence, in either language.
    """
    if layers < 3:
        raise InputError(f"gnmt with {layers} layers: encoder and decoder have at least 3 each")
    flow = steps * _HIDDEN
    operators = [
        embedding("encoder.embedder", _VOCABULARY, _HIDDEN, steps),
        pointwise("encoder.embedder.dropout", flow),
        lstm("encoder.rnn_layers.0", _HIDDEN, _HIDDEN, steps, directions=2),
        pointwise("encoder.rnn_layers.0.dropout", 2 * flow),
        lstm("encoder.rnn_layers.1", 2 * _HIDDEN, _HIDDEN, steps),
    ]
    for number in range(2, layers):
        name = f"encoder.rnn_layers.{number}"
        operators += [
            pointwise(f"{name}.dropout", flow),
            lstm(name, _HIDDEN, _HIDDEN, steps),
            pointwise(f"{name}.add", flow, 3, 3),
        ]
    operators += [
        pointwise("decoder.embedder", flow),  # looks up in the encoder's table
        lstm("decoder.att_rnn.rnn", _HIDDEN, _HIDDEN, steps),
        *_attention("decoder.att_rnn.attn", steps),
    ]
    for number in range(layers - 1):
        name = f"decoder.rnn_layers.{number}"
        operators += [
            pointwise(f"{name}.dropout", flow),
            pointwise(f"{name}.cat", 2 * flow, 2, 2),
            lstm(name, 2 * _HIDDEN, _HIDDEN, steps),
        ]
        if number:
            operators.append(pointwise(f"{name}.add", flow, 3, 3))
    operators += [
        linear("decoder.classifier.classifier", _HIDDEN, _VOCABULARY, rows=steps),
        pointwise("loss", steps * _VOCABULARY),
    ]
    source = (
        "NVIDIA DeepLearningExamples, GNMT v2, one embedding for both languages; the batch recalled from the "
        "ACE paper; 50 words are an assumption"
    )
    return Workload("gnmt", f"GNMT v2 with {layers} layers", tuple(operators), 128, source)


def _attention(name: str, steps: int) -> list[Operator]:
    """Bahdanau's: a small network scores every pair of words, and a vector is written for each."""
    pairs = steps * steps
    table = pairs * _HIDDEN
    return [
        linear(f"{name}.linear_q", _HIDDEN, _HIDDEN, rows=steps, bias=False),
        linear(f"{name}.linear_k", _HIDDEN, _HIDDEN, rows=steps, bias=False),
        Operator(
            name,
            (_HIDDEN, 1, _HIDDEN),  # the scoring vector, its scale, the bias
            products=(Product(pairs, 1, _HIDDEN, 1), Product(steps, 1, steps, _HIDDEN)),
            # Forward: sum written, bias added, tanh, product. Backward: the same way back, sums over words.
            forward_elements=6 * table + 6 * pairs + 2 * steps * _HIDDEN,
            backward_elements=7 * table + 8 * pairs + 4 * steps * _HIDDEN,
            kernels=(6, 8),
        ),
    ]
