"""Transformer attention on a CPU: exact, fast, and explained.

Arrays from NumPy, PyTorch (on the CPU) and anything else with DLPack or the buffer protocol go in without a copy, and
results are of the same kind. attend.torch puts attend in PyTorch's place, attend.transformers puts it into Hugging Face
models, and attend.onnx.attention is the ONNX operator.

Letters in shapes: B batch, H query heads, Hkv key/value heads, Tq queries, Tk keys, D head size, Dv value head size,
E embedding size.
"""

from importlib.metadata import version as _version

from . import (
    _analysis,
    _calls,  # noqa: F401  # what is imported of _core below is what it puts before its functions
    _circuits,
    onnx,
)
from ._analysis import *  # noqa: F403
from ._circuits import *  # noqa: F403
from ._core import (
    AttentionGradients,
    AttentionPlan,
    AttentionSteps,
    AttentionSummary,
    Attribution,
    Chat,
    Edit,
    Encoding,
    Generator,
    HeadScores,
    JacobianLens,
    Knockout,
    KvCache,
    Model,
    ModelCache,
    ModelInfo,
    Page,
    Picture,
    SparseAutoencoder,
    Steering,
    Tokenizer,
    TokenVectorFile,
    Trace,
    VectorFile,
    WithoutSink,
    attention,
    attention_backward,
    attention_map,
    attention_steps,
    attention_summary,
    attention_summary_varlen,
    attention_varlen,
    attention_varlen_backward,
    attention_weights,
    explain,
    explain_presets,
    head_grid,
    head_scores,
    key_sizes,
    max_sim,
    merge,
    num_threads,
    picture,
    plan,
    plan_backward,
    plan_summary,
    quantize,
    scaled_dot_product_attention,
    set_num_threads,
    token_links,
    token_strip,
)
from ._features import Features
from ._gradient import Gradient
from ._recording import RecordedLayer, Recording
from ._tasks import Classification, Filling, Ranked, Tag, Tagged
from ._token_vectors import NearText, SparseVector, TokenMatch, TokenVectors
from ._vectors import Near

__version__ = _version("attend-cpu")
__all__ = [
    "AttentionGradients",
    "AttentionPlan",
    "AttentionSteps",
    "AttentionSummary",
    "Attribution",
    "Chat",
    "Classification",
    "Edit",
    "Encoding",
    "Features",
    "Filling",
    "Generator",
    "Gradient",
    "HeadScores",
    "JacobianLens",
    "Knockout",
    "KvCache",
    "Model",
    "ModelCache",
    "ModelInfo",
    "Near",
    "NearText",
    "Page",
    "Picture",
    "Ranked",
    "RecordedLayer",
    "Recording",
    "SparseAutoencoder",
    "SparseVector",
    "Steering",
    "Tag",
    "Tagged",
    "TokenMatch",
    "TokenVectorFile",
    "TokenVectors",
    "Tokenizer",
    "Trace",
    "VectorFile",
    "WithoutSink",
    "attention",
    "attention_backward",
    "attention_map",
    "attention_steps",
    "attention_summary",
    "attention_summary_varlen",
    "attention_varlen",
    "attention_varlen_backward",
    "attention_weights",
    "explain",
    "explain_presets",
    "head_grid",
    "head_scores",
    "key_sizes",
    "max_sim",
    "merge",
    "num_threads",
    "onnx",
    "picture",
    "plan",
    "plan_backward",
    "plan_summary",
    "quantize",
    "scaled_dot_product_attention",
    "set_num_threads",
    "token_links",
    "token_strip",
]
__all__ += _analysis.__all__
__all__ += _circuits.__all__
