// What the schedules of fused and decode share: the sequences of each, and the bound on their scratch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/problem.h"
#include "attention/schedule.h"
#include "core/message.h"

namespace attend::inline v1 {

// body(sequence) for each one that can differ from the others.
template <class Body>
void for_each_member(const Problem& p, const Schedule& s, Body body) {
  if (p.alike()) {
    const std::int64_t different = p.key_lengths.empty() ? 1 : p.B;
    for (std::int64_t n = 0; n < different; ++n) body(p.sequence(n));
  }
  for (const std::int64_t n : s.members) body(p.sequence(n));
}

inline std::int64_t count_members(const Problem& p, const Schedule& s) {
  return p.alike() ? p.B : std::ssize(s.members);
}

inline Sequence member(const Problem& p, const Schedule& s, std::int64_t n) {
  return p.sequence(s.members.empty() ? n : s.members[static_cast<std::size_t>(n)]);
}

inline std::int64_t longest_sequence(const Problem& p, const Schedule& s) {
  std::int64_t longest = 0;
  for_each_member(p, s, [&](const Sequence& sequence) { longest = std::max(longest, sequence.Tq); });
  return longest;
}

// Numbers of scratch beyond which no memory will do, far from where their bytes overflow: 256 TiB of f32.
inline constexpr double most_scratch = 0x1p46;

inline void check_scratch(const Problem& p, double numbers) {
  if (numbers <= most_scratch) return;
  fail(ErrorCode::out_of_memory, "attention", "no memory for the scratch of q {}, k {}, v {}", p.trim(p.q.shape()),
       p.trim(p.k.shape()), p.trim(p.v.shape()));
}

}  // namespace attend::inline v1
