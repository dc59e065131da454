"""Uses the installed package as its user would, with NumPy alone: python use.py [MINILM]. Prints one line."""

import sys

import numpy

import attend

x = numpy.random.default_rng(0).standard_normal((1, 4, 700, 32), numpy.float32)
scores = x @ x.swapaxes(2, 3) / 32**0.5
weights = numpy.exp(scores - scores.max(-1, keepdims=True))
assert numpy.abs(attend.attention(x, x, x) - weights / weights.sum(-1, keepdims=True) @ x).max() < 1e-5
assert attend.explain("the cat sat").to_png().startswith(b"\x89PNG")
assert 'id="request"' in attend.explain("the cat sat").to_html()
json = r'''{"version": "1.0", "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\p{L}+"},
"behavior": "Isolated", "invert": false}, "model": {"type": "WordPiece", "unk_token": "?", "max_input_chars_per_word": 100,
"continuing_subword_prefix": "##", "vocab": {"?": 0, "\u00e9t": 1, "##\u00e9": 2, "1": 3}}}'''
assert attend.Tokenizer(json).encode("e\u0301t\u00e91").ids.tolist() == [1, 2, 3]
if sys.argv[1:]:
    model = attend.Model.load(sys.argv[1])
    near = model.embed(["a cat on a mat", "a kitten lay down", "stocks fell"])
    assert near.shape == (3, 384) and near[0] @ near[1] > 0.5 > near[0] @ near[2]
    recording = model.record("the animal did not cross the street because it was too tired", keep="qk")
    assert abs(recording[3].weights(1)[0].sum() - 1) < 1e-5
    assert recording[3].picture(1).to_png().startswith(b"\x89PNG")
print(f"works on {sys.version.split()[0]} {attend.__version__}")
