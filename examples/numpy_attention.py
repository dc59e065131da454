"""Attention of NumPy arrays: options, what merges by lse, decoding with a cache, and a look inside."""
import numpy

import attend

random = numpy.random.default_rng(42)
q = random.standard_normal((1, 8, 5, 64), numpy.float32)  # [B,H,Tq,D]
k, v = random.standard_normal((2, 1, 2, 9, 64), numpy.float32)  # [B,Hkv,Tk,D]: four query heads share a key head

# Each query sees itself and the two keys before it; the queries are the last 5 of 9 positions.
out, lse = attend.attention(q, k, v, causal=True, window=(2, 0), offset="bottom_right", return_lse=True)
print("out", out.shape, "lse", lse.shape)

# Keys may be split, on two machines say: lse is all that is needed to join the results.
halves = [attend.attention(q, k[:, :, part], v[:, :, part], return_lse=True) for part in (slice(5), slice(5, 9))]
joined, _ = attend.merge(*halves[0], *halves[1])
print("split and joined, the largest difference:", abs(joined - attend.attention(q, k, v)).max())

# Token by token: a cache keeps the keys and values, and every query sees those that are there.
cache, steps = attend.KvCache(batch=1, heads=2, d_k=64, d_v=64), []
cache.append(k[:, :, :4], v[:, :, :4])
for i in range(5):
    cache.append(k[:, :, 4 + i:5 + i], v[:, :, 4 + i:5 + i])
    steps.append(cache.attention(q[:, :, i:i + 1]))
decoded = numpy.concatenate(steps, axis=2)
print("token by token, the largest difference:",
      abs(decoded - attend.attention(q, k, v, causal=True, offset="bottom_right")).max())

print(attend.plan(q, k, v))

# Inside: every step is a field of the trace; print(trace) walks through them.
trace = attend.explain("Life is short, eat dessert first")
print(trace.tokens, trace.weights.round(2), sep="\n")
