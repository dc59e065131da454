// Which instructions an x86-64 processor runs and its system keeps the registers of, by CPUID and XGETBV themselves:
// not every compiler's runtime fills in what __builtin_cpu_supports reads (Zig 0.17's says no to all).
#pragma once

namespace attend::inline v1::kernels {

struct X86Features {
  bool avx2 = false;         // with FMA and F16C
  bool avx2_vnni = false;    // AVX-VNNI, besides avx2
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_vnni = false;  // AVX-512 VNNI, besides avx512
  bool avx512_bf16 = false;  // besides avx512_vnni
};

// Reads them once.
const X86Features& x86_features();

}  // namespace attend::inline v1::kernels
