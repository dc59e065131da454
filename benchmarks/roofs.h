// What the machine can do at best, by loops that do nothing else: the measure of the kernels.
#pragma once

#include <cstddef>
#include <string>

namespace attend::bench {

struct Roof {
  double per_second;  // floating-point operations, or bytes read
  std::string loop;   // which instructions measured it
};

// Independent chains of f32 fused multiply-adds in registers; one counts as two operations.
Roof fma_roof(int threads, double seconds);
// The same with bf16 pairs accumulated in f32. Without such an instruction: the f32 roof.
Roof bf16_roof(int threads, double seconds);
// Reading memory: give it far more than the last cache holds.
Roof read_roof(int threads, const void* memory, std::size_t bytes, double seconds);

}  // namespace attend::bench
