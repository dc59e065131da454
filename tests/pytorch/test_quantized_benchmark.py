"""benchmarks/quantized.py's models with random blocks, at small sizes: what they are said to be, and that attend opens them."""

import pathlib
import sys

import numpy as np
import pytest

import attend

gguf = pytest.importorskip("gguf")  # .ci/long has it

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "benchmarks"))
import quantized  # noqa: E402

SMALL = {"width": 512, "layers": 2, "heads": 4, "kv_heads": 2, "head_size": 64, "wide": 768}


@pytest.mark.parametrize("kind", quantized.KINDS)
def test_its_random_models_are_what_they_are_called(tmp_path, kind):
    shape, most, wider, output = quantized.KINDS[kind]
    path = tmp_path / f"{kind}.gguf"
    quantized.write_random(path, shape | SMALL, most, wider, output)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    types = {name: tensor.tensor_type.name for name, tensor in tensors.items() if not name.endswith("norm.weight")}
    # As llama.cpp mixes them: attn_v and ffn_down of every other layer, and the output.
    assert types.pop("output.weight") == output
    assert {types.pop(f"blk.0.{name}.weight") for name in ("attn_v", "ffn_down")} == {wider}
    assert set(types.values()) == {most}
    for tensor in tensors.values():
        if tensor.tensor_type.name != "F32":
            numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
            assert numbers.std() == pytest.approx(numbers.shape[1] ** -0.5, rel=0.1), tensor.name
            assert abs(numbers.mean()) < 0.15 * numbers.std(), tensor.name  # codes of Q4_0 are -8 to 7
    model = attend.Model.load(path)
    assert model.info.type == shape["architecture"] and model.info.layers == 2
    assert np.isfinite(model.logits(model.forward(np.arange(300, 320)))).all()
    assert len(quantized.prompts_of(path)["prefill of 1,024"]) == 1024
    assert quantized.read_bytes(path) == sum(t.n_bytes for t in tensors.values()) - tensors["token_embd.weight"].n_bytes


def test_what_parts_is_counted_to_where_it_parts():
    assert quantized.same([1, 2, 3], [1, 2, 4]) == "2 of 3"
    assert quantized.same([[1, 2], [3, 4]], [[1, 2], [5, 4]]) == "2 of 4"
    assert quantized.same([1], None) == ""
