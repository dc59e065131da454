// What a call is cut by is asked once: results are the same where the number of threads changes while a call runs.
#include "attend/threads.h"

#include <string>
#include <vector>

#include "tests/expect.h"
#include "tests/host_threads.h"
#include "tests/ring/ranks.h"

namespace attend {
namespace {

using namespace test;

std::vector<Tensor> all_of(const AttentionGradients& x) {
  std::vector<Tensor> list = results(x.dq, x.dk, x.dv);
  for (const auto* each : {&x.dbias, &x.dalibi_slopes, &x.dsinks, &x.ddistance_bias})
    if (*each) list.push_back((*each)->view().clone());
  return list;
}

std::vector<Tensor> all_of(const AttentionResult& x) {
  return results(x.out, x.lse);
}

TEST(Threads, LinearIsUndisturbed) {
  constexpr std::int64_t in = 512, out = 2048;
  const Tensor weight = Generator(1).normal({out, in}, 0, 1), columns = weight.view().transpose(0, 1).clone();
  const Tensor narrow = weight.view().to(DType::bf16), dy = Generator(2).normal({40, out}, 0, 1);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(out * in / 32 * 34));
  std::uint32_t last = 1;
  for (std::uint8_t& byte : bytes) byte = (last = last * 1664525 + 1013904223) >> 24 & 0x2F;
  std::vector<Linear> layers;
  layers.emplace_back(weight);
  layers.push_back(Linear::borrow(weight));
  layers.push_back(Linear::borrow(narrow));
  layers.push_back(Linear::borrow(columns.view().transpose(0, 1)));
  layers.push_back(Linear::borrow(QuantizedView{bytes.data(), QuantizedType::q8_0, out, in, 0}));
  const std::vector<std::string> names{"packed", "borrowed", "borrowed bf16", "columns", "quantized"};
  std::vector<Public> functions;
  for (std::size_t n = 0; n < layers.size(); ++n) {
    for (const std::int64_t rows : {8, 40}) {
      functions.push_back({names[n] + " forward of " + std::to_string(rows), [&layer = layers[n], rows] {
                             const Tensor x = Generator(3).normal({rows, in}, 0, 1);
                             return results(layer.forward(x));
                           }});
    }
  }
  functions.push_back({"backward", [&] {
                         const LinearGradients got = layers[1].backward(dy, dy.view().slice(1, 0, in));
                         return results(got.dx, got.dweight);
                       }});
  functions.push_back(
      {"forward_each", [&] {
         return Linear::forward_each({&layers[0], &layers[1], &layers[3]}, dy.view().slice(0, 0, 3).slice(1, 0, in));
       }});
  expect_undisturbed(functions);
}

TEST(Threads, AttentionIsUndisturbed) {
  Generator draw(1);
  const Tensor q = draw.randn({2, 4, 150, 32}), k = draw.randn({2, 2, 170, 32}), v = draw.randn({2, 2, 170, 24});
  const Tensor dout = draw.randn({2, 4, 150, 24}), bias = draw.randn({1, 1, 150, 170}), slopes = draw.rand({4});
  const Tensor sinks = draw.randn({4}), distances = draw.randn({4, 9});
  const AttentionOptions options{.causal = true,
                                 .offset = Offset(20),
                                 .bias = bias,
                                 .distance_bias = distances,
                                 .alibi_slopes = slopes,
                                 .sinks = sinks};
  const AttentionResult forward = attention(q, k, v, options);
  const BackwardOptions wanted{.dbias = true, .dalibi_slopes = true, .dsinks = true, .ddistance_bias = true};
  const View one = q.view().slice(2, 0, 1);
  const Tensor many = draw.randn({2, 2, 2100, 32});
  const Tensor starts = whole_numbers({0, 1, 100, 150}), key_starts = whole_numbers({0, 90, 140, 170});
  const AttentionOptions sequences{.query_starts = starts, .key_starts = key_starts};
  const View q1 = q.view().slice(0, 0, 1), k1 = k.view().slice(0, 0, 1), v1 = v.view().slice(0, 0, 1);
  const auto wide = [](const View& x) { return x.slice(2, 0, 60).to(DType::f64); };
  const Tensor Q = wide(q), K = wide(k), V = wide(v);
  KvCache cache(2, 2, 32, 32, DType::i8);
  expect_undisturbed({
      {"fused", [&] { return all_of(attention(q, k, v, options)); }},
      {"decode", [&] { return all_of(attention(one, many, many)); }},
      {"both paths", [&] { return all_of(attention(q1, k1, v1, sequences)); }},
      {"f64", [&] { return all_of(attention(Q, K, V)); }},
      {"steps", [&] { return results(attention_steps(q, k, v, options).weights); }},
      {"quantized cache",
       [&] {
         cache.truncate(0);
         cache.append(many, many);
         return all_of(attention(one, cache));
       }},
      {"merge", [&] { return all_of(merge(forward, forward)); }},
      {"backward",
       [&] { return all_of(attention_backward(dout, q, k, v, forward.out, forward.lse, options, wanted)); }},
      {"f64 backward",
       [&] {
         const AttentionResult of = attention(Q, K, V);
         return all_of(attention_backward(of.out, Q, K, V, of.out, of.lse));
       }},
      {"summary",
       [&] {
         const AttentionSummary s = attention_summary(q, k, forward.lse, options, {.map = MapSize{16, 16}});
         return results(s.top_keys, s.top_weights, s.entropy, s.received, s.lift, *s.map, *s.map_max);
       }},
      {"weights", [&] { return results(attention_weights(q, k, std::nullopt, options)); }},
      {"map",
       [&] {
         return results(attention_map({9, 9}, q, k, forward.lse, options).map);
       }},
      {"head scores",
       [&] {
         Tensor entropy({8}, DType::f64);
         const std::vector<HeadScores> scores = head_scores(q, k, forward.lse, options);
         for (std::size_t n = 0; n < scores.size(); ++n) entropy.data<double>()[n] = scores[n].entropy;
         return results(entropy);
       }},
  });
}

TEST(Threads, LayersAreUndisturbed) {
  Generator draw(1);
  const Tensor x = draw.randn({2, 60, 512}), weight = draw.randn({512}), dy = draw.randn({2, 60, 512});
  const MultiHeadAttention layer(512, 4, draw);
  const SelfAttention self(512, 64, 64, draw);
  const Embedding table(draw.randn({3000, 512}));
  std::vector<std::int64_t> ids;
  for (std::int64_t n = 0; n < 500; ++n) ids.push_back(n * 37 % 3000);
  const Tensor dtable = draw.randn({500, 512});
  expect_undisturbed({
      {"MultiHeadAttention",
       [&] {
         MultiHeadAttentionState state;
         std::vector<Tensor> list = results(layer.forward(x, {}, state).output);
         const MultiHeadAttentionGradients got = layer.backward(dy, x, state);
         list.push_back(got.dquery.view().clone());
         for (const auto& [name, gradient] : got.parameters) list.push_back(gradient.view().clone());
         return list;
       }},
      {"SelfAttention", [&] { return results(self.forward(x)); }},
      {"Embedding", [&] { return results(table.forward(ids), table.backward(dtable, ids)); }},
      {"LayerNorm", [&] { return results(LayerNorm(weight).forward(x), RmsNorm(weight).forward(x)); }},
      {"activation",
       [&] {
         std::vector<Tensor> list = results(x);
         activate(Activation::gelu, list[0].view());
         return list;
       }},
      {"key_sizes",
       [&] {
         return results(
             key_sizes(x.view().reshape({2, 60, 4, 128}).transpose(1, 2), layer.state_dict().at("out_proj.weight")));
       }},
  });
}

TEST(Threads, TheRingIsUndisturbed) {
  Generator draw(1);
  const Tensor q = draw.randn({1, 2, 400, 16}), k = draw.randn({1, 2, 600, 16}), dout = draw.randn({1, 2, 400, 16});
  const RingSharding sharding = RingSharding::contiguous(2, 400, 600);
  expect_undisturbed({{"ring_attention", [&] {
                         std::vector<Tensor> list(8);
                         run_all(2, [&](RingTransport& ranks) {
                           const auto part = [&](const View& x, const auto& runs) {
                             return ring_shard(x, 2, runs, ranks.rank());
                           };
                           const Tensor own_q = part(q, sharding.queries), own_k = part(k, sharding.keys);
                           const AttentionResult got = ring_attention(ranks, own_q, own_k, own_k, sharding);
                           const AttentionGradients d =
                               ring_attention_backward(ranks, part(dout, sharding.queries), own_q, own_k, own_k,
                                                       got.out, got.lse, sharding, {}, {.lse_low = *got.lse_low});
                           const int at = 4 * ranks.rank();
                           std::ranges::move(results(got.out, d.dq, d.dk, d.dv), list.begin() + at);
                         });
                         return list;
                       }}});
}

}  // namespace
}  // namespace attend
