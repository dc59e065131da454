#include "attention/key_stretches.h"

#include <algorithm>

#include "core/divide_up.h"

namespace attend::inline v1 {

// Stretches count slowest: items that add to the same rows are far apart, and what is causal comes longest first.
void Stretches::cut(std::int64_t sequences, std::int64_t heads_of_each,
                    const std::function<std::int64_t(std::int64_t)>& keys_of) {
  heads = heads_of_each;
  std::int64_t most = 0;
  first_stretch.reserve(static_cast<std::size_t>(sequences) + 1);
  first_stretch.push_back(0);
  for (std::int64_t n = 0; n < sequences; ++n) {
    const std::int64_t stretches = std::max<std::int64_t>(1, divide_up(keys_of(n), keys));
    first_stretch.push_back(first_stretch.back() + stretches);
    most = std::max(most, stretches);
  }
  items.reserve(static_cast<std::size_t>(first_stretch.back() * heads));
  for (std::int64_t stretch = 0; stretch < most; ++stretch) {
    for (std::int64_t n = 0; n < sequences; ++n) {
      for (std::int64_t h = 0; stretch < count(n) && h < heads; ++h) items.push_back({n, h, stretch});
    }
  }
}

std::int64_t Stretches::count(std::int64_t sequence) const {
  const auto at = static_cast<std::size_t>(sequence);
  return first_stretch[at + 1] - first_stretch[at];
}

std::size_t Stretches::place(const Item& item) const {
  const std::int64_t first = first_stretch[static_cast<std::size_t>(item.sequence)];
  return static_cast<std::size_t>(first * heads + item.head * count(item.sequence) + item.stretch);
}

std::int64_t Stretches::list_bytes() const {
  return std::ssize(items) * static_cast<std::int64_t>(sizeof(Item)) + std::ssize(first_stretch) * 8;
}

}  // namespace attend::inline v1
