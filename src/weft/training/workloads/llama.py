"""Llama 2, module for module as Hugging Face's transformers build it.

Shapes are those of the published model (Touvron et al. 2023, arXiv:2307.09288, and the configuration of
meta-llama/Llama-2-7b): 32 layers of width 4096 with 32 heads, feed-forward layers of 11,008 with SwiGLU,
32,000 words, 4,096 positions, RMSNorm, no biases, and an output of its own.
"""

from __future__ import annotations

from dataclasses import replace

from weft.errors import InputError
from weft.training.workloads.operators import (
    Operator,
    embedding,
    fused_attention,
    linear,
    pointwise,
    root_mean_square,
)
from weft.training.workloads.workload import KeptActivations, Workload

_DEPTH = 32
_WIDTH = 4096
_HEADS = 32
_FEED_FORWARD = 11_008
_VOCABULARY = 32_000
_POSITIONS = 4096


def llama2_7b(sequence: int = _POSITIONS) -> Workload:
    """Llama 2 with 7 billion parameters: 32 layers of width 4096."""
    if not 1 <= sequence <= _POSITIONS:
        msg = f"llama2-7b with sequences of {sequence}: expected 1 to its {_POSITIONS} positions"
        raise InputError(msg)
    operators = [embedding("embed_tokens", _VOCABULARY, _WIDTH, sequence)]
    for number in range(_DEPTH):
        operators += _decoder_layer(f"layers.{number}.", sequence)
    operators += [
        root_mean_square("norm", sequence * _WIDTH, _WIDTH),
        linear("lm_head", _WIDTH, _VOCABULARY, rows=sequence, bias=False),
        pointwise("loss", sequence * _VOCABULARY),
    ]
    source = "Touvron et al. 2023 (arXiv:2307.09288); a batch of one full sequence is an assumption"
    kept = _kept(sequence)
    return Workload("llama2-7b", "Llama 2, 7 billion parameters", tuple(operators), 1, source, kept=kept)


def _decoder_layer(name: str, sequence: int) -> list[Operator]:
    flow, inner = sequence * _WIDTH, sequence * _FEED_FORWARD

    def product(part: str, inputs: int, outputs: int) -> Operator:
        return linear(f"{name}{part}", inputs, outputs, rows=sequence, bias=False)

    rotary = pointwise(f"{name}self_attn.rotary", 2 * flow, 2, 2)
    return [
        root_mean_square(f"{name}input_layernorm", flow, _WIDTH),
        *(product(f"self_attn.{part}_proj", _WIDTH, _WIDTH) for part in "qkv"),
        replace(rotary, kernels=(2, 2)),
        fused_attention(f"{name}self_attn", sequence, _WIDTH, _HEADS),
        product("self_attn.o_proj", _WIDTH, _WIDTH),
        pointwise(f"{name}self_attn.add", flow, 3, 3),
        root_mean_square(f"{name}post_attention_layernorm", flow, _WIDTH),
        product("mlp.gate_proj", _WIDTH, _FEED_FORWARD),
        pointwise(f"{name}mlp.act_fn", inner),
        product("mlp.up_proj", _WIDTH, _FEED_FORWARD),
        pointwise(f"{name}mlp.multiply", inner, 3, 5),
        product("mlp.down_proj", _FEED_FORWARD, _WIDTH),
        pointwise(f"{name}mlp.add", flow, 3, 3),
    ]


def _kept(sequence: int) -> KeptActivations:
    """Count what backward needs as Korthikanti et al. do for GPT, for the operators of this model.

    A layer keeps, for each token, eight vectors of its width (inputs of both norms, of the three products
    that share one, of the output and of the feed-forward part; queries, keys and values) and four of the
    feed-forward width (gate, activated gate, other factor, their product).
    """
    tokens = _DEPTH * (8 * _WIDTH + 4 * _FEED_FORWARD) + 2 * _WIDTH
    return KeptActivations(
        sequence * tokens,
        4 * sequence * _VOCABULARY,
        "counted as in Korthikanti et al. 2022 (arXiv:2205.05198), Section 4, with fused attention",
    )
