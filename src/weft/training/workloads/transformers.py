"""BERT and GPT-2, module for module as Hugging Face's transformers build them."""

from __future__ import annotations

from weft.errors import InputError
from weft.training.workloads.operators import Operator, attention, embedding, linear, normalisation, pointwise
from weft.training.workloads.workload import KeptActivations, Workload

_VOCABULARY = 30_528
"""BERT's 30,522 words, padded to a multiple of 64 as DeAR's benchmark does."""

_POSITIONS = 512


def bert_base(sequence: int = 64) -> Workload:
    """BERT-Base: 12 layers of width 768, for pre-training."""
    return _bert("bert-base", "BERT-Base for pre-training", 12, 768, sequence, 64)


def bert_large(sequence: int = 64) -> Workload:
    """BERT-Large: 24 layers of width 1024, for pre-training."""
    return _bert("bert-large", "BERT-Large for pre-training", 24, 1024, sequence, 32)


def _bert(name: str, summary: str, depth: int, width: int, sequence: int, batch: int) -> Workload:
    """All tokens are predicted, as BertForPreTraining does; heads are 64 wide."""
    _check_sequence(name, sequence, _POSITIONS)
    flow = sequence * width
    operators = [
        embedding("embeddings.word_embeddings", _VOCABULARY, width, sequence),
        embedding("embeddings.position_embeddings", _POSITIONS, width, sequence),
        embedding("embeddings.token_type_embeddings", 2, width, sequence),
        pointwise("embeddings.add", 2 * flow, 3, 0),
        normalisation("embeddings.LayerNorm", flow, width, over_batch=False),
        pointwise("embeddings.dropout", flow),
    ]
    for number in range(depth):
        operators += _bert_layer(f"encoder.layer.{number}.", width, sequence)
    operators += [
        linear("pooler.dense", width, width),
        pointwise("pooler.activation", width),
        linear("cls.predictions.transform.dense", width, width, rows=sequence),
        pointwise("cls.predictions.transform.gelu", flow),
        normalisation("cls.predictions.transform.LayerNorm", flow, width, over_batch=False),
        linear("cls.predictions.decoder", width, _VOCABULARY, rows=sequence, tied=True),
        linear("cls.seq_relationship", width, 2),
        pointwise("loss", sequence * _VOCABULARY),
    ]
    source = "transformers' BertForPreTraining, vocabulary 30,528; batch and sequence of DeAR's scripts"
    kept = _kept(depth, sequence, width, _VOCABULARY)
    return Workload(name, summary, tuple(operators), batch, source, kept=kept)


def _bert_layer(name: str, width: int, sequence: int) -> list[Operator]:
    flow = sequence * width
    return [
        *(
            linear(f"{name}attention.self.{part}", width, width, rows=sequence)
            for part in ("query", "key", "value")
        ),
        attention(f"{name}attention.self", sequence, width, width // 64),
        linear(f"{name}attention.output.dense", width, width, rows=sequence),
        pointwise(f"{name}attention.output.dropout", flow),
        pointwise(f"{name}attention.output.add", flow, 3, 3),
        normalisation(f"{name}attention.output.LayerNorm", flow, width, over_batch=False),
        linear(f"{name}intermediate.dense", width, 4 * width, rows=sequence),
        pointwise(f"{name}intermediate.gelu", 4 * flow),
        linear(f"{name}output.dense", 4 * width, width, rows=sequence),
        pointwise(f"{name}output.dropout", flow),
        pointwise(f"{name}output.add", flow, 3, 3),
        normalisation(f"{name}output.LayerNorm", flow, width, over_batch=False),
    ]


def gpt2_medium(sequence: int = 1024) -> Workload:
    """GPT-2 medium: 24 layers of width 1024, the output tied to the word embeddings."""
    depth, width, vocabulary, positions = 24, 1024, 50_257, 1024
    _check_sequence("gpt2-medium", sequence, positions)
    flow = sequence * width
    operators = [
        embedding("wte", vocabulary, width, sequence),
        embedding("wpe", positions, width, sequence),
        pointwise("embeddings.add", flow, 3, 0),
        pointwise("drop", flow),
    ]
    for number in range(depth):
        name = f"h.{number}."
        operators += [
            normalisation(f"{name}ln_1", flow, width, over_batch=False),
            linear(f"{name}attn.c_attn", width, 3 * width, rows=sequence),
            attention(f"{name}attn", sequence, width, width // 64),
            linear(f"{name}attn.c_proj", width, width, rows=sequence),
            pointwise(f"{name}attn.dropout", flow),
            pointwise(f"{name}attn.add", flow, 3, 3),
            normalisation(f"{name}ln_2", flow, width, over_batch=False),
            linear(f"{name}mlp.c_fc", width, 4 * width, rows=sequence),
            pointwise(f"{name}mlp.gelu", 4 * flow),
            linear(f"{name}mlp.c_proj", 4 * width, width, rows=sequence),
            pointwise(f"{name}mlp.dropout", flow),
            pointwise(f"{name}mlp.add", flow, 3, 3),
        ]
    operators += [
        normalisation("ln_f", flow, width, over_batch=False),
        linear("lm_head", width, vocabulary, rows=sequence, bias=False, tied=True),
        pointwise("loss", sequence * vocabulary),
    ]
    source = "transformers' GPT2LMHeadModel, gpt2-medium; the batch is an assumption"
    kept = _kept(depth, sequence, width, vocabulary)
    return Workload("gpt2-medium", "GPT-2 medium", tuple(operators), 4, source, kept=kept)


def _kept(depth: int, sequence: int, width: int, vocabulary: int) -> KeptActivations:
    """What backward needs of one sample: `depth` layers of sbh (34 + 5 as / h) bytes in a format of two.

    Of these, 2 and 1 are masks of a byte each. Behind the layers come inputs of the last norm and of the
    output, and the output itself in fp32. Heads are 64 wide.
    """
    table = width // 64 * sequence * sequence
    flow = sequence * width
    return KeptActivations(
        depth * (16 * flow + 2 * table) + 2 * flow,
        depth * (2 * flow + table) + 4 * sequence * vocabulary,
        "Korthikanti et al. 2022 (arXiv:2205.05198), Section 4: sbh (34 + 5 as / h) bytes a layer",
    )


def _check_sequence(name: str, sequence: int, positions: int) -> None:
    if not 1 <= sequence <= positions:
        raise InputError(f"{name} with sequences of {sequence}: expected 1 to its {positions} positions")
