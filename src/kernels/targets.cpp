#include "kernels/targets.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/message.h"
#include "kernels/targets/list.h"

namespace attend::inline v1::kernels {

namespace {

constexpr const Target* all[] = {ATTEND_TARGETS};

const Target& choose() {
  const char* wanted = std::getenv("ATTEND_TARGET");
  const Target* best = nullptr;
  std::string runs;
  for (const Target* target : all) {
    if (!target->supported()) continue;
    if (wanted && std::string_view(wanted) == target->name) return *target;
    runs += runs.empty() ? target->name : std::string(", ") + target->name;
    best = target;
  }
  if (wanted && *wanted) {
    fail(ErrorCode::bad_value, "", "ATTEND_TARGET is '{}', expected a target that this processor runs: {}", wanted,
         runs);
  }
  return *best;
}

}  // namespace

std::span<const Target* const> targets() {
  return all;
}

const Target& target() {
  static const Target& chosen = choose();
  return chosen;
}

}  // namespace attend::inline v1::kernels
