// Random calls that decode, against the oracle: any options and dtypes, keys in one tensor, in a KvCache, or in one of
// 8 bits.
#include <optional>

#include "attend/kv_cache.h"
#include "tests/attention/call.h"

namespace attend {
namespace {

using namespace test;

// Up to 8 query rows share a key head: this many calls take the decode path and nothing else.
constexpr std::uint64_t calls = 5'000;

Sizes random_decode(Dice& dice) {
  Sizes s;
  s.B = 1 + dice.below(2), s.Hkv = 1 + dice.below(2);
  const std::int64_t group = 1 + dice.below(4);
  s.H = s.Hkv * group, s.Tq = 1 + dice.below(8 / group);
  s.Tk = 1 + (dice.one_in(25) ? 500 + dice.below(900) : dice.below(dice.one_in(4) ? 200 : 70));
  s.D = 1 + dice.below(dice.one_in(10) ? 140 : 36), s.Dv = 1 + dice.below(dice.one_in(10) ? 140 : 36);
  return s;
}

KvCache cache_of(const Call& x, DType dtype, Dice& dice) {
  KvCache cache(x.K.size(0), x.K.size(1), x.K.size(3), x.V.size(3), dtype);
  const std::int64_t keys = x.K.size(2);
  for (std::int64_t at = 0; at < keys;) {
    const std::int64_t next = std::min(keys, at + 1 + dice.below(dice.one_in(2) ? 5 : keys));
    cache.append(x.K.slice(2, at, next), x.V.slice(2, at, next));
    at = next;
  }
  return cache;
}

TEST(AttentionDecode, AgreesWithTheOracleAsFarAsItsDtypeDoes) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  for (const std::uint64_t seed : sweep(200'000, 200'000 + calls)) {
    Dice dice(seed);
    const std::int64_t keys_in = dice.below(3);
    // A cache is not cut by query_starts; dropout is not for decoding.
    const unsigned never = keys_in == 0 ? with_dropout : with_dropout | with_starts;
    Call x = make_call(random_decode(dice), random_features(dice) & ~never, dtypes[seed % 3], seed);
    if (keys_in == 0) {
      expect_as_exact(x, x.run());
    } else {
      const KvCache cache = cache_of(x, keys_in == 1 ? x.Q.dtype() : DType::i8, dice);
      x.what += keys_in == 1 ? " cached" : " i8";
      x.k = cache.keys(), x.v = cache.values(), x.K = x.k, x.V = x.v;
      if (!x.options.offset) x.options.offset = Offset::bottom_right();
      expect_as_exact(x, attention(x.Q, cache, x.options), keys_in == 2);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace attend
