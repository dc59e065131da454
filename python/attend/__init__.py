"""Transformer attention on a CPU: exact, fast, and explained.

Arrays of NumPy, PyTorch (on the CPU) and anything else with DLPack or the buffer protocol go in without a copy, and
results are of the same kind. attend.torch puts it in PyTorch's place, attend.transformers in Hugging Face models, and
attend.onnx.attention is the ONNX operator.

Letters in shapes: B batch, H query heads, Hkv key/value heads, Tq queries, Tk keys, D head size, Dv value head size,
E embedding size.
"""

from importlib.metadata import version as _version

from . import onnx
from ._core import (
    AttentionGradients,
    AttentionPlan,
    AttentionSteps,
    Generator,
    KvCache,
    Trace,
    attention,
    attention_backward,
    attention_steps,
    attention_varlen,
    attention_varlen_backward,
    explain,
    explain_presets,
    merge,
    num_threads,
    plan,
    plan_backward,
    scaled_dot_product_attention,
    set_num_threads,
)

__version__ = _version("attend-cpu")
__all__ = [
    "AttentionGradients",
    "AttentionPlan",
    "AttentionSteps",
    "Generator",
    "KvCache",
    "Trace",
    "attention",
    "attention_backward",
    "attention_steps",
    "attention_varlen",
    "attention_varlen_backward",
    "explain",
    "explain_presets",
    "merge",
    "num_threads",
    "onnx",
    "plan",
    "plan_backward",
    "scaled_dot_product_attention",
    "set_num_threads",
]
