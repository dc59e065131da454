#include "tests/fuzz/mutators/libfuzzer.h"

std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  using namespace attend::fuzz;
  return mutate_input(data, size, most, seed,
                      [](std::string_view input, Random& random) { return mutate_gguf(input, random, mutate_bytes); });
}
