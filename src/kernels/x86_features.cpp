#ifdef __x86_64__
#include "kernels/x86_features.h"

#include <cpuid.h>

#include <cstdint>

namespace attend::inline v1::kernels {
namespace {

// The registers that the system saves: XCR0. Intel's manual, volume 1, 13.3.
std::uint64_t saved_registers() {
  std::uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

X86Features read() {
  constexpr std::uint64_t ymm = 0x6, zmm = 0xe6;  // SSE and AVX; and the masks and both halves of the ZMM registers
  X86Features found;
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return found;
  const bool avx_fma_f16c = (ecx & bit_AVX) && (ecx & bit_FMA) && (ecx & bit_F16C);
  const std::uint64_t saved = saved_registers();
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return found;
  found.avx2 = avx_fma_f16c && (ebx & bit_AVX2) && (saved & ymm) == ymm;
  constexpr unsigned all = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  found.avx512 = found.avx2 && (ebx & all) == all && (saved & zmm) == zmm;
  found.avx512_vnni = found.avx512 && (ecx & bit_AVX512VNNI);
  // Leaf 7.1 is there where leaf 7.0 says so: eax is the last subleaf.
  if (eax < 1 || !__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) return found;
  found.avx2_vnni = found.avx2 && (eax & bit_AVXVNNI);
  found.avx512_bf16 = found.avx512_vnni && (eax & bit_AVX512BF16);
  return found;
}

}  // namespace

const X86Features& x86_features() {
  static const X86Features found = read();
  return found;
}

}  // namespace attend::inline v1::kernels
#endif
