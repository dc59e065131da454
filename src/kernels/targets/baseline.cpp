// What every x86-64 processor has, and WebAssembly, for which emscripten writes SSE2 in its own instructions.
#include "kernels/simd/sse2.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/make_target.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return true;
}

}  // namespace

constinit const Target target_baseline = make_target("baseline", supported);

}  // namespace attend::inline v1::kernels
