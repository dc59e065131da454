"""RecordedLayer.steps() beside the same steps in NumPy, from a model's own configuration and weights: of Gemma 2, whose scores are
softcapped and whose first layer has a window, and of T5, which adds a bias for each distance."""

import functools
import json
import math

import numpy
import pytest
import tiny
from safetensors.numpy import save_file

import attend

IDS = [1, 2, 3, 1, 5, 2, 7, 8, 1, 9]
HEADS, D, E, WIDE, VOCABULARY = 4, 8, 16, 24, 40
GEMMA = {"model_type": "gemma2", "hidden_size": E, "intermediate_size": WIDE, "num_hidden_layers": 2, "num_attention_heads": HEADS,
         "num_key_value_heads": 2, "head_dim": D, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 1.5,
         "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 4, "sliding_window": 4, "eos_token_id": None}
T5 = {"model_type": "t5", "d_model": E, "d_kv": D, "d_ff": WIDE, "num_layers": 1, "num_decoder_layers": 1, "num_heads": HEADS,
      "vocab_size": VOCABULARY, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
      "layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "tie_word_embeddings": True, "decoder_start_token_id": 0,
      "eos_token_id": None, "pad_token_id": 0}


def write(folder, config, shapes):
    random = numpy.random.default_rng(1)
    tensors = {name: random.standard_normal(shape, numpy.float32) for name, shape in shapes.items()}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return tensors


def gemma(folder):
    shapes = {"model.embed_tokens.weight": (VOCABULARY, E), "model.norm.weight": (E,)}
    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    for layer in range(2):
        parts = {"self_attn.q_proj": (HEADS * D, E), "self_attn.k_proj": (2 * D, E), "self_attn.v_proj": (2 * D, E),
                 "self_attn.o_proj": (E, HEADS * D), "mlp.gate_proj": (WIDE, E), "mlp.up_proj": (WIDE, E), "mlp.down_proj": (E, WIDE)}
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in (parts | dict.fromkeys(norms, (E,))).items()}
    write(folder, GEMMA, shapes)
    return attend.Model.load(str(folder))


def t5(folder):
    shapes = {"shared.weight": (VOCABULARY, E)}
    for stack in ("encoder", "decoder"):
        attentions = ("SelfAttention",) if stack == "encoder" else ("SelfAttention", "EncDecAttention")
        at = f"{stack}.block.0.layer."
        for n, attention in enumerate(attentions):
            shapes |= {f"{at}{n}.{attention}.{part}.weight": (HEADS * D, E) for part in "qkv"}
            shapes |= {f"{at}{n}.{attention}.o.weight": (E, HEADS * D), f"{at}{n}.layer_norm.weight": (E,)}
        mlp = len(attentions)
        shapes |= {f"{at}0.SelfAttention.relative_attention_bias.weight": (8, HEADS), f"{at}{mlp}.layer_norm.weight": (E,),
                   f"{at}{mlp}.DenseReluDense.wi.weight": (WIDE, E), f"{at}{mlp}.DenseReluDense.wo.weight": (E, WIDE),
                   f"{stack}.final_layer_norm.weight": (E,)}
    tensors = write(folder, T5, shapes)
    return attend.Model.load(str(folder)), tensors


def softmax(logits):
    powers = numpy.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def visible(size, window):
    """Which keys each query of a causal layer sees."""
    behind = numpy.arange(size)[:, None] - numpy.arange(size)
    return (behind >= 0) & (behind < window)


def expect(steps, scale, logits_of, weights):
    """What the steps must be, from their queries and keys on; logits_of: from scaled scores to logits."""
    q, k = steps.queries.astype(numpy.float64), steps.keys.astype(numpy.float64)
    scores = q @ k.T
    numpy.testing.assert_allclose(steps.scores, scores, rtol=1e-6, atol=1e-6)
    numpy.testing.assert_allclose(steps.scaled_scores, scores * scale, rtol=1e-6, atol=1e-6)
    logits = logits_of(scores * scale)
    numpy.testing.assert_allclose(steps.logits, logits, rtol=1e-6, atol=1e-6)
    numpy.testing.assert_array_equal(steps.weights, weights)
    # Products of 8 numbers up to some 30 are off by a few units in the last place of 100: 1e-5 of a weight.
    expected = softmax(logits)
    numpy.testing.assert_allclose(steps.weights, expected, rtol=2e-5, atol=1e-7)
    numpy.testing.assert_allclose(numpy.exp(steps.logits - steps.lse[:, None]), expected, rtol=2e-5, atol=1e-7)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        entropy = -numpy.nansum(expected * numpy.log(expected), axis=-1)
    numpy.testing.assert_allclose(steps.entropy, entropy, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer, window", [(0, 4), (1, 64)])
def test_a_softcap_and_a_window_are_in_the_logits(tmp_path, layer, window):
    recorded = gemma(tmp_path).record(IDS, keep="qk")[f"{layer}.self"]
    cap, sees = GEMMA["attn_logit_softcapping"], visible(len(IDS), window)

    def logits(scaled):
        return numpy.where(sees, cap * numpy.tanh(scaled / cap), -numpy.inf)

    for head in range(HEADS):
        steps = recorded.steps(head)
        assert (numpy.abs(steps.scaled_scores) > cap).any()  # the softcap matters
        expect(steps, GEMMA["query_pre_attn_scalar"] ** -0.5, logits, recorded.weights(head))


def biased(bias, sees, scaled):
    return numpy.where(sees, scaled + bias, -numpy.inf)


def bucket(distance, both_sides):
    """Of a key's place less its query's: T5's relative_position_bucket (Raffel et al. 2020) with 8 buckets to 20."""
    buckets, first = 8, 0
    if both_sides:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(20 / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


def test_biases_of_distances_are_in_the_logits(tmp_path):
    model, tensors = t5(tmp_path)
    recording = model.record(IDS, decoder_ids=[0, 4, 5, 6], keep="qk")
    for name, size in (("encoder", len(IDS)), ("decoder", 4)):
        table = tensors[f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        sees = numpy.ones((size, size), bool) if name == "encoder" else visible(size, size)
        buckets = [[bucket(j - i, name == "encoder") for j in range(size)] for i in range(size)]
        recorded = recording[f"{name}.0.self"]
        for head in range(HEADS):
            expect(recorded.steps(head), 1.0, functools.partial(biased, table[buckets, head], sees), recorded.weights(head))
    cross = recording["decoder.0.cross"]
    expect(cross.steps(2), 1.0, lambda scaled: scaled, cross.weights(2))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return attend.Model.load(tiny.write(tmp_path_factory.mktemp("tiny"))).record("the cat sat the cat", keep="qk")


def test_a_part_is_that_part_of_all(plain):
    whole, part = plain[1].steps(2), plain[1].steps(2, queries=(1, 4), keys=(0, 2))
    numpy.testing.assert_array_equal(part.queries, whole.queries[1:4])
    numpy.testing.assert_array_equal(part.keys, whole.keys[:2])
    for name in ("scores", "scaled_scores", "logits", "weights"):
        numpy.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[1:4, :2])
    for name in ("lse", "entropy"):
        numpy.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[1:4])
    assert whole.context is None


def test_values_give_the_context(plain):
    values = numpy.random.default_rng(2).standard_normal((plain[0].keys, 3), numpy.float32)
    steps = plain[0].steps(1, values=values)
    numpy.testing.assert_allclose(steps.context, steps.weights @ values, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"RecordedLayer.steps: values have shape \[2,3\], expected \[Tk,Dv\], Tk = "):
        plain[0].steps(1, values=values[:2])


def test_without_q_and_k_there_are_none(tmp_path):
    recording = attend.Model.load(tiny.write(tmp_path)).record("the cat sat")
    with pytest.raises(ValueError, match="q and k were not kept"):
        recording[0].steps(0)
