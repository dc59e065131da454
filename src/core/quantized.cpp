#include "attend/quantized.h"

#include <array>
#include <cstddef>

namespace attend::inline v1 {

namespace {

struct Facts {
  std::string_view name;
  std::int64_t size, bytes;
};

const Facts& facts(QuantizedType type) {
  static constexpr std::array<Facts, 12> table{{{"Q4_0", 32, 18},
                                                {"Q4_1", 32, 20},
                                                {"Q5_0", 32, 22},
                                                {"Q5_1", 32, 24},
                                                {"Q8_0", 32, 34},
                                                {"Q2_K", 256, 84},
                                                {"Q3_K", 256, 110},
                                                {"Q4_K", 256, 144},
                                                {"Q5_K", 256, 176},
                                                {"Q6_K", 256, 210},
                                                {"IQ4_NL", 32, 18},
                                                {"IQ4_XS", 256, 136}}};
  return table[static_cast<std::size_t>(type)];
}

}  // namespace

std::string_view name_of(QuantizedType type) {
  return facts(type).name;
}
std::string_view name_of(Activations activations) {
  switch (activations) {
    case Activations::exact:
      return "exact";
    case Activations::fast:
      return "fast";
    case Activations::int8:
      return "int8";
  }
  return {};
}
std::optional<Activations> activations_named(std::string_view name) {
  for (const Activations each : {Activations::exact, Activations::fast, Activations::int8})
    if (name == name_of(each)) return each;
  return std::nullopt;
}
std::int64_t block_size(QuantizedType type) {
  return facts(type).size;
}
std::int64_t block_bytes(QuantizedType type) {
  return facts(type).bytes;
}

}  // namespace attend::inline v1
