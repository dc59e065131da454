// What is done to a KvCache in any order: it holds what was appended, forks part from it, and attention() over it has
// the bits of attention() over the same keys in one tensor; of a cache of 8 bits, in a cache that they came to at once.
#include "tests/fuzz/tensors.h"

using namespace attend;

namespace {

// A cache, and what was put into it.
struct Held {
  KvCache cache;
  Tensor keys, values;

  explicit Held(KvCache from) : cache(std::move(from)), keys(cache.keys()), values(cache.values()) {}
  // Of the first so many positions of another one.
  Held(KvCache from, const Held& of, std::int64_t length)
      : cache(std::move(from)),
        keys(of.keys.view().slice(2, 0, length).clone()),
        values(of.values.view().slice(2, 0, length).clone()) {}

  bool quantized() const { return cache.dtype() == DType::i8; }
  KvCache at_once() const {
    KvCache fresh(cache.batch(), cache.heads(), cache.d_k(), cache.d_v(), cache.dtype());
    fresh.append(keys, values);
    return fresh;
  }
  void check() const {
    fuzz::require(cache.length() == keys.size(2), "its length");
    const Tensor k = quantized() ? at_once().keys() : keys.clone(),
                 v = quantized() ? at_once().values() : values.clone();
    fuzz::require(fuzz::same(cache.keys(), k) && fuzz::same(cache.values(), v), "what it holds");
  }
};

Tensor joined(const View& before, const View& more) {
  const std::int64_t length = before.size(2), added = more.size(2);
  Tensor out({before.size(0), before.size(1), length + added, before.size(3)}, before.dtype());
  out.view().slice(2, 0, length).copy_from(before);
  out.view().slice(2, length, length + added).copy_from(more);
  return out;
}

void append(fuzz::Input& input, Held& held) {
  const std::int64_t length = held.cache.length() > 1000 ? 1 : fuzz::make_length(input);
  const KvCache& c = held.cache;
  const fuzz::Operand k = fuzz::make_operand(input, {c.batch(), c.heads(), length, c.d_k()}, fuzz::make_dtype(input));
  const fuzz::Operand v = fuzz::make_operand(input, {c.batch(), c.heads(), length, c.d_v()}, fuzz::make_dtype(input));
  if (fuzz::error_of([&] { held.cache.append(k.view, v.view); })) return;
  held.keys = joined(held.keys, k.view);
  held.values = joined(held.values, v.view);
}

void truncate(fuzz::Input& input, Held& held) {
  const std::int64_t length = held.cache.length() - input.between(-1, 254);
  const auto refused = fuzz::error_of([&] { held.cache.truncate(length); });
  fuzz::require(refused.has_value() == (length < 0 || length > held.keys.size(2)), "a length is refused");
  if (refused) return;
  held.keys = held.keys.view().slice(2, 0, length).clone();
  held.values = held.values.view().slice(2, 0, length).clone();
}

DType query_dtype(fuzz::Input& input, const KvCache& cache) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  return cache.dtype() == DType::i8 ? input.one_of(dtypes) : cache.dtype();
}

void attend_to(fuzz::Input& input, const Held& held) {
  const KvCache& c = held.cache;
  const fuzz::Sizes s{c.batch(), c.heads() * input.between(1, 3), c.heads(), input.between(0, 12), c.length(), c.d_k(),
                      c.d_v()};
  const fuzz::Operand q = fuzz::make_operand(input, {s.B, s.H, s.Tq, s.D}, query_dtype(input, c));
  fuzz::Options options = fuzz::make_options(input, s);
  AttentionResult cached, plain;
  if (fuzz::error_of([&] { cached = attention(q.view, c, options.values); })) return;
  if (!options.values.offset) options.values.offset = Offset::bottom_right();
  plain = held.quantized() ? attention(q.view, held.at_once(), options.values)
                           : attention(q.view, held.keys, held.values, options.values);
  fuzz::require(fuzz::same(cached.out, plain.out) && fuzz::same(cached.lse, plain.lse), "not the bits of one tensor");
}

// Of all of them in one call: each one's numbers are those that it has alone.
void attend_to_all(fuzz::Input& input, const std::list<Held>& all) {
  std::vector<const KvCache*> caches;
  for (const Held& held : all) caches.push_back(&held.cache);
  const KvCache& c = *caches[0];
  const std::int64_t N = std::ssize(caches), H = c.heads() * input.between(1, 3);
  const fuzz::Operand q = fuzz::make_operand(input, {N, H, input.between(0, 12), c.d_k()}, query_dtype(input, c));
  const AttentionOptions options{.causal = input.flag(), .window = {.left = input.between(-1, 100)}};
  AttentionResult together;
  const auto refused = fuzz::error_of([&] { together = attention(q.view, caches, options); });
  fuzz::require(refused || c.batch() == 1, "only caches of one sequence each are taken");
  if (refused || q.view.rank() != 4) return;  // the operand may have fewer axes where they are 1
  for (std::int64_t n = 0; n < N; ++n) {
    const AttentionResult alone = attention(q.view.slice(0, n, n + 1), *caches[static_cast<std::size_t>(n)], options);
    const auto item = [n](const Tensor& x) { return x.view().slice(0, n, n + 1).clone(); };
    fuzz::require(fuzz::same(item(together.out), alone.out) && fuzz::same(item(together.lse), alone.lse),
                  "not the bits of one sequence");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int most_steps = 12;
  fuzz::Input input(data, size);
  std::list<Held> all;
  const std::int64_t B = input.between(1, 2), Hkv = input.between(1, 2), D = input.between(0, 9),
                     Dv = input.between(1, 9);
  const DType dtype = input.one_in(4) ? DType::i8 : fuzz::make_dtype(input);
  if (fuzz::error_of([&] { all.emplace_back(KvCache(B, Hkv, D, Dv, dtype)); })) return 0;
  for (int step = 0; step < most_steps && !input.rest().empty(); ++step) {
    Held& held = input.flag() ? all.front() : all.back();
    const std::uint8_t kind = input.byte() % 7;
    if (kind <= 1) append(input, held);
    if (kind == 2) truncate(input, held);
    if (kind == 3) attend_to(input, held);
    const std::int64_t length = input.between(0, 255);
    if (kind == 4) fuzz::error_of([&] { all.emplace_back(held.cache.fork(length), held, length); });
    if (kind == 5) all.emplace_back(held.cache, held, held.cache.length());
    if (kind == 6) attend_to_all(input, all);
  }
  for (const Held& held : all) held.check();
  return 0;
}
