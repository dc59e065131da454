"""attend.onnx.attention: every node case of ONNX's operator Attention (onnx_cases.py), and what it refuses."""

import doctest

import numpy as np
import onnx
import onnx_cases
import pytest
from onnx.reference import ReferenceEvaluator

import attend


@pytest.fixture(scope="module")
def cases():
    return onnx_cases.published()


@pytest.mark.parametrize("change", [None, onnx_cases.in_f64], ids=["as published", "in f64"])
def test_every_attention_node(cases, change):
    wrong = {}
    for case in map(change, cases) if change else cases:
        outputs = onnx_cases.run(attend.onnx.attention, case)
        found = {name: onnx_cases.difference(outputs[name], x) for name, x in case.expected.items()}
        wrong |= {f"{case.name} {name}": what for name, what in found.items() if what}
    assert (len(cases), wrong) == (onnx_cases.CASES, {})


@pytest.mark.parametrize("mask", [np.array([[True, False, True]]), np.array([[0.5, -1.0, 0.0]])], ids=["bool", "f64"])
def test_a_mask_for_fewer_keys_hides_the_rest(mask):
    # In the published cases such a mask always comes with nonpad_kv_seqlen, which hides those keys too.
    inputs = dict(zip("QKV", np.random.default_rng(0).random((3, 1, 1, 5, 4))), attn_mask=mask)
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, None) for name in [*inputs, "Y"]]
    node = onnx.helper.make_node("Attention", list(inputs), ["Y"])
    graph = onnx.helper.make_graph([node], "short_mask", infos[:-1], infos[-1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)])
    expected, = ReferenceEvaluator(model).run(None, inputs)
    assert onnx_cases.difference(attend.onnx.attention(**inputs)[0], expected) is None


def test_the_raw_product_has_no_softcap():
    # No published case asks for both; ONNX's text says "raw", its reference implementation gives the capped product.
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 5, 8))
    scores = attend.onnx.attention(q, k, v, softcap=0.5, scale=0.25, return_qk_matmul_output=True)[3]
    assert np.abs(scores - q @ k.swapaxes(-1, -2) / 4).max() < 8 * 2**-53 * np.abs(scores).max()


def test_what_is_not_needed_is_neither_copied_nor_computed():
    Q, K, V = np.random.default_rng(0).standard_normal((3, 2, 5, 24), np.float32)
    Y, key, value, scores = attend.onnx.attention(Q, K, V, q_num_heads=3, kv_num_heads=3)
    assert np.shares_memory(key, K) and np.shares_memory(value, V) and scores is None
    assert Y.shape == (2, 5, 24) and Y.flags.c_contiguous


def test_the_docstring():
    assert doctest.testmod(attend.onnx).attempted > 0


X = np.zeros((1, 2, 3, 4), np.float32)
FLAT = np.zeros((1, 3, 8), np.float32)


@pytest.mark.parametrize("inputs, attributes, kind, message", [
    ([X, X, [1.0]], {}, TypeError, "Q, K, V: expected NumPy arrays or PyTorch tensors, got ndarray, ndarray, list"),
    ([X, X, X.astype("f8")], {}, TypeError, "v is float64, q is float32"),
    ([X, X, X, ("a", "b")], {}, TypeError, "Q, K, V, attn_mask: expected NumPy arrays .* tuple"),
    ([X, X, X, None, b"ab", X], {}, TypeError, "Q, K, V, past_key, past_value: expected NumPy arrays .* bytes"),
    ([X[0, 0], X, X], {}, ValueError, r"Q: expected 3 or 4 axes, got shape \(3, 4\)"),
    ([FLAT, FLAT, FLAT], {}, ValueError, r"q_num_heads: expected a number that divides .* Q \(1, 3, 8\), got None"),
    ([FLAT, FLAT, FLAT], {"q_num_heads": 2, "kv_num_heads": 3}, ValueError, "kv_num_heads: expected a number .* got 3"),
    ([X, X, X], {"q_num_heads": 3}, ValueError, r"q_num_heads is 3, but Q has shape \(1, 2, 3, 4\)"),
    ([X, X, X, np.ones((1, 4), bool)], {}, ValueError, r"attn_mask has shape \(1, 4\), expected .* \(1, 2, 3, 3\)"),
    ([X, X, X, np.ones((2, 3), bool)], {}, ValueError, r"attn_mask has shape \(2, 3\), expected .* \(1, 2, 3, 3\)"),
    ([X, X, X, np.ones((1, 3), int)], {}, TypeError, "bias: .*int64|bias is int64"),
    ([X, X, X, None, X], {}, ValueError, "past_key and past_value: expected both or neither"),
    ([X, X, X, None, X, X[:, :1]], {}, ValueError, r"past_value has shape \(1, 1, 3, 4\), expected \(1, 2, 3, 4\) but"),
    ([X, X, X, None, X, X, np.array([3])], {}, ValueError, "nonpad_kv_seqlen can't be given with past_key"),
    ([X, X, X, None, None, None, np.array([4])], {}, ValueError, r"key_lengths\[0\] is 4, expected 0 to Tk = 3"),
    ([X, X, X], {"is_causal": 2}, ValueError, "is_causal: expected one of 0, 1, got 2"),
    ([X, X, X], {"qk_matmul_output_mode": 4}, ValueError, "qk_matmul_output_mode: expected one of 0, 1, 2, 3, got 4"),
    ([X, X, X], {"softmax_precision": 7}, ValueError, "softmax_precision: expected one of None, 1, 10, 11, 16, got 7"),
    ([X, X, X], {"left_window_size": -2}, ValueError, "window side -2, expected -1"),
])
def test_a_bad_argument_is_named(inputs, attributes, kind, message):
    with pytest.raises(kind, match=f"attention: .*{message}"):
        attend.onnx.attention(*inputs, **attributes)
