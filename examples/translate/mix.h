// One number from several, for shuffles and dropout: what is drawn depends on what it is drawn for, never on what was
// drawn before, so that a training that was interrupted goes on as if it had not been.
#pragma once

#include <cstdint>

namespace translate {

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a * 0x9E3779B97F4A7C15u + b + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace translate
