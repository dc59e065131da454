// Which weights dropout keeps: a function of the seed and the pair's place in the batch alone, so that every path, and
// the backward, drops the same. Also read by the files that are compiled for a target: no headers with inline code.
#pragma once

#include <cstdint>

namespace attend::inline v1::kernels {

// The dropout of one head's pairs, or of a group's. The places are those of the whole tensors [B,H,Tq,Tk].
struct Dropout {
  double p = 0;  // 0: nothing is dropped
  std::uint64_t seed = 0;
  std::int64_t b = 0, h = 0;        // batch item, (first) query head
  std::int64_t query = 0, key = 0;  // where query row 0 and key 0 stand
};

namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of x in every bit of the result.
inline std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

// What a row's draws begin from; head counts from the group's first.
inline std::uint64_t dropout_row(const Dropout& dropout, std::int64_t head, std::int64_t query) {
  std::uint64_t x = mix64(dropout.seed + 0x9E3779B97F4A7C15);
  const std::int64_t places[] = {dropout.b, dropout.h + head, dropout.query + query};
  for (const std::int64_t place : places) {
    x = mix64(x + 0x9E3779B97F4A7C15 * (static_cast<std::uint64_t>(place) + 1));
  }
  return x;
}

// A draw below it is dropped: p in 2^32nds.
inline std::uint32_t dropout_threshold(double p) {
  return static_cast<std::uint32_t>(p * 0x1p32);
}

// Whether a row keeps the weight of that key (its place in the whole tensor). 32-bit arithmetic alone, which compilers
// turn into vectors; the multipliers are those of the hash "lowbias32" (C. Wellons), found by search.
inline bool dropout_keeps(std::uint64_t row, std::uint32_t threshold, std::int64_t key) {
  auto x = static_cast<std::uint32_t>(row) + static_cast<std::uint32_t>(key) * 0x9E3779B9u;
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  x = (x ^ static_cast<std::uint32_t>(row >> 32) ^ x >> 16) * 0x7FEB352Du;
  return (x ^ x >> 15) >= threshold;
}

}  // namespace
}  // namespace attend::inline v1::kernels
