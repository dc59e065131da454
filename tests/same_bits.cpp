// Prints a hash of the results of a fixed set of calls, one line a call: all paths, options and dtypes, forward,
// decode, backward and layers. Two builds that print the same compute the same bits: scripts/same_bits.sh builds two
// and compares. ATTEND_TARGET chooses the kernels; exit code 4: this build or this processor has no such target.
#include <attend/attend.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace attend;

std::uint64_t hash_of(const View& x, std::uint64_t seed = 0xCBF29CE484222325) {
  const Tensor packed = x.clone();
  const auto* bytes = static_cast<const unsigned char*>(packed.raw());
  const std::int64_t count = packed.count() * size_of(packed.dtype());
  for (std::int64_t i = 0; i < count; ++i) seed = (seed ^ bytes[i]) * 0x100000001B3;
  return seed;
}

bool first_target() {
  const char* name = std::getenv("ATTEND_TARGET");
  return !name || std::strcmp(name, "avx2") < 0 || std::strcmp(name, "baseline") == 0;
}

struct Sizes {
  const char* name;
  std::int64_t B, H, Hkv, Tq, Tk, D, Dv;
};

// Fused, with odd and whole tiles; decode, one and several ranges; grouped heads; Dv unlike D.
constexpr Sizes sizes[] = {
    {"square64", 1, 2, 2, 64, 64, 64, 64}, {"odd", 2, 2, 1, 77, 131, 20, 33},     {"wide", 1, 4, 2, 200, 300, 128, 128},
    {"image", 1, 2, 2, 130, 77, 40, 40},   {"long", 1, 1, 1, 300, 1100, 64, 64},  {"small", 1, 3, 3, 12, 6, 5, 3},
    {"decode1", 2, 4, 1, 1, 900, 64, 64},  {"decode2", 1, 2, 2, 4, 2100, 40, 72}, {"decode_odd", 1, 3, 3, 3, 70, 17, 9},
};

struct Arguments {
  Tensor q, k, v, dout, mask, bias, slopes, sinks, lengths;
  AttentionOptions options;
  BackwardOptions wanted;
};

using Change = void (*)(Arguments&, Generator&, const Sizes&);
struct Variant {
  const char* name;
  Change change;
};

void bias_of(Arguments& a, Generator& g, const Dims& shape, DType dtype) {
  a.bias = g.randn(shape).view().to(dtype);
  a.options.bias = a.bias;
  a.wanted.dbias = true;
}

const Variant variants[] = {
    {"plain", [](Arguments&, Generator&, const Sizes&) {}},
    {"causal", [](Arguments& a, Generator&,
                  const Sizes&) { a.options.causal = true, a.options.offset = Offset::bottom_right(); }},
    {"causal_top",
     [](Arguments& a, Generator&, const Sizes&) { a.options.causal = true, a.options.offset = Offset::top_left(); }},
    {"window",
     [](Arguments& a, Generator&, const Sizes&) {
       a.options.window = {33, 12}, a.options.offset = Offset(7);
     }},
    {"mask",
     [](Arguments& a, Generator& g, const Sizes& s) {
       const Tensor draw = g.rand({s.B, 1, s.Tq, s.Tk});
       a.mask = Tensor(draw.shape(), DType::boolean);
       for (std::int64_t i = 0; i < draw.count(); ++i) a.mask.data<bool>()[i] = draw.data<float>()[i] < 0.8f;
       a.options.mask = a.mask;
     }},
    {"bias",
     [](Arguments& a, Generator& g, const Sizes& s) {
       bias_of(a, g, {1, s.H, s.Tq, s.Tk}, DType::f32);
     }},
    {"bias_keys_bf16",
     [](Arguments& a, Generator& g, const Sizes& s) {
       bias_of(a, g, {1, 1, 1, s.Tk}, DType::bf16);
     }},
    {"bias_infinite",
     [](Arguments& a, Generator& g, const Sizes& s) {
       bias_of(a, g, {s.Tq, s.Tk}, DType::f64);
       for (std::int64_t i = 0; i < a.bias.count(); i += 3) a.bias.data<double>()[i] = -__builtin_inf();
     }},
    {"alibi",
     [](Arguments& a, Generator& g, const Sizes& s) {
       a.slopes = g.rand({s.H}), a.options.alibi_slopes = a.slopes, a.wanted.dalibi_slopes = true;
       a.options.offset = Offset::bottom_right();
     }},
    {"sinks_softcap",
     [](Arguments& a, Generator& g, const Sizes& s) {
       a.sinks = g.randn({s.H}), a.options.sinks = a.sinks, a.wanted.dsinks = true;
       a.options.softcap = 3, a.options.scale = -0.3;
     }},
    {"dropout",
     [](Arguments& a, Generator&, const Sizes&) {
       a.options.dropout = {0.3, 99};
     }},
    {"everything",
     [](Arguments& a, Generator& g, const Sizes& s) {
       bias_of(a, g, {s.B, s.H, s.Tq, s.Tk}, DType::f16);
       a.slopes = g.rand({s.H}), a.options.alibi_slopes = a.slopes, a.wanted.dalibi_slopes = true;
       a.sinks = g.randn({s.H}), a.options.sinks = a.sinks, a.wanted.dsinks = true;
       const Tensor draw = g.rand({1, s.H, s.Tq, s.Tk});
       a.mask = Tensor(draw.shape(), DType::boolean);
       for (std::int64_t i = 0; i < draw.count(); ++i) a.mask.data<bool>()[i] = draw.data<float>()[i] < 0.7f;
       a.options.mask = a.mask;
       a.lengths = Tensor({s.B}, DType::i64);
       for (std::int64_t b = 0; b < s.B; ++b) a.lengths.data<std::int64_t>()[b] = s.Tk - 2 * b - 1;
       a.options.key_lengths = a.lengths;
       a.options.causal = true, a.options.window = {90, -1}, a.options.offset = Offset::bottom_right();
       a.options.softcap = 5;
       a.options.dropout = {0.1, 5};
     }},
};

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

void say(const std::string& name, std::uint64_t hash) {
  std::printf("%-40s %016llx\n", name.c_str(), static_cast<unsigned long long>(hash));
}

// One call and its backward, contiguous or with strides as [B,T,H,D] has them.
void run(const Sizes& s, const Variant& variant, DType dtype, bool heads_last) {
  if (dtype == DType::f64 && (s.Tq * s.Tk > 12000 || !first_target()))
    return;  // plain loops: slow, and the same on every target
  Generator g(static_cast<std::uint64_t>(s.Tq * 1000 + s.Tk));
  Arguments a;
  a.q = g.normal({s.B, s.H, s.Tq, s.D}, 0, 3).view().to(dtype);
  a.k = g.randn({s.B, s.Hkv, s.Tk, s.D}).view().to(dtype);
  a.v = g.randn({s.B, s.Hkv, s.Tk, s.Dv}).view().to(dtype);
  a.dout = g.randn({s.B, s.H, s.Tq, s.Dv}).view().to(dtype);
  if (heads_last) {
    for (Tensor* x : {&a.q, &a.k, &a.v, &a.dout}) *x = x->view().transpose(1, 2).clone();
  }
  const auto view = [&](const Tensor& x) { return heads_last ? x.view().transpose(1, 2) : x.view(); };
  variant.change(a, g, s);
  const std::string name =
      std::string(s.name) + " " + variant.name + " " + std::string(name_of(dtype)) + (heads_last ? " bthd" : "");
  const AttentionResult result = attention(view(a.q), view(a.k), view(a.v), a.options);
  say(name, hash_of(result.lse, hash_of(result.out)));
  const AttentionGradients d =
      attention_backward(view(a.dout), view(a.q), view(a.k), view(a.v), result.out, result.lse, a.options, a.wanted);
  std::uint64_t hash = hash_of(d.dv, hash_of(d.dk, hash_of(d.dq)));
  for (const auto* x : {&d.dbias, &d.dalibi_slopes, &d.dsinks}) {
    if (*x) hash = hash_of(**x, hash);
  }
  say(name + " backward", hash);
}

void run_varlen(DType dtype) {
  Generator g(4);
  const Tensor q = g.randn({1, 4, 150, 32}).view().to(dtype), k = g.randn({1, 2, 170, 32}).view().to(dtype);
  Tensor starts_q({5}, DType::i64), starts_k({5}, DType::i64);
  const std::int64_t at_q[] = {0, 1, 70, 70, 150}, at_k[] = {0, 60, 100, 101, 170};
  for (int i = 0; i < 5; ++i) starts_q.data<std::int64_t>()[i] = at_q[i], starts_k.data<std::int64_t>()[i] = at_k[i];
  AttentionOptions options{.causal = true, .offset = Offset::bottom_right()};
  options.query_starts = starts_q, options.key_starts = starts_k;
  const AttentionResult r = attention(q, k, k, options);
  say("varlen " + std::string(name_of(dtype)), hash_of(r.lse, hash_of(r.out)));
  const AttentionGradients d = attention_backward(r.out, q, k, k, r.out, r.lse, options);
  say("varlen " + std::string(name_of(dtype)) + " backward", hash_of(d.dv, hash_of(d.dk, hash_of(d.dq))));
}

void run_cache(DType dtype) {
  Generator g(5);
  KvCache cache(2, 2, 24, 24, dtype);
  const Tensor k = g.randn({2, 2, 700, 24});
  cache.append(k, k);
  for (const std::int64_t queries : {1, 3, 40}) {
    const Tensor q = g.randn({2, 4, queries, 24}).view().to(dtype);
    AttentionOptions options{.causal = true, .offset = Offset::bottom_right()};
    const AttentionResult r = attention(q, cache, options);
    say("cache " + std::string(name_of(dtype)) + " " + std::to_string(queries), hash_of(r.lse, hash_of(r.out)));
  }
}

void run_steps(DType dtype) {
  Generator g(6);
  const Tensor q = g.randn({2, 37, 19}).view().to(dtype), k = g.randn({2, 53, 19}).view().to(dtype),
               v = g.randn({2, 53, 7}).view().to(dtype);
  const AttentionSteps s = attention_steps(q, k, v, {.causal = true, .offset = Offset(9), .softcap = 4});
  std::uint64_t hash = 0;
  for (const Tensor* x : {&s.scores, &s.scaled_scores, &s.logits, &s.weights, &s.context, &s.lse})
    hash = hash_of(*x, hash);
  say("steps " + std::string(name_of(dtype)), hash);
}

void run_layers() {
  Generator g(7);
  const Linear linear(96, 130, g);
  for (const std::int64_t rows : {1, 5, 90})
    say("linear " + std::to_string(rows), hash_of(linear.forward(g.randn({rows, 96}))));
  const Tensor x = g.randn({70, 64}), weight = g.randn({50, 64});
  say("linear bf16", hash_of(Linear(weight.view().to(DType::bf16)).forward(x.view().to(DType::bf16))));
}

// Of ggml's types, in the order of QuantizedType; heads of 10 rows interleaved.
void run_quantized() {
  Generator g(8);
  const Tensor x = g.randn({20, 512});
  std::uint32_t last = 1;
  for (int n = 0; n <= static_cast<int>(QuantizedType::iq4_xs); ++n) {
    QuantizedView blocks{nullptr, static_cast<QuantizedType>(n), 50, 512, n % 2 * 10};
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(blocks.rows * blocks.row_bytes()));
    // Without the upper bits: scales are finite and small wherever they stand.
    for (std::uint8_t& byte : bytes) byte = (last = last * 1664525 + 1013904223) >> 24 & 0x2F;
    blocks.data = bytes.data();
    const std::string name = "quantized " + std::string(name_of(blocks.type));
    say(name, hash_of(dequantize(blocks)));
    const Linear linear = Linear::borrow(blocks);
    for (const std::int64_t rows : {1, 7, 20})
      say(name + " " + std::to_string(rows), hash_of(linear.forward(x.view().slice(0, 0, rows))));
  }
}

}  // namespace

int main() {
  try {
    (void)plan({5, 4}, {5, 4}, {5, 4});
  } catch (const Error&) {
    return 4;
  }
  for (const Sizes& s : sizes) {
    for (const Variant& variant : variants) {
      for (const DType dtype : dtypes) run(s, variant, dtype, false);
    }
    run(s, variants[1], DType::f32, true);
    run(s, variants[11], DType::bf16, true);
  }
  for (const DType dtype : dtypes) {
    run_varlen(dtype);
    if (dtype != DType::f64) run_cache(dtype);
    run_steps(dtype);
  }
  run_layers();
  run_quantized();
}
