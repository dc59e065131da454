#include "roofs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// One body for every vector length. The chains stand side by side in registers: 12 of them cover two units with a
// latency of 4 to 6 cycles. Macros and not templates, because a function template does not take its caller's target.
#define EACH_CHAIN(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

namespace attend::bench {
namespace {

constexpr int chains = 12;

// Written once for each loop, so that the compiler can't drop the work.
volatile float drain;

// Numbers near 0.5 with many set bits: zeros would draw less power and could clock higher.
float start_value(int i) {
  return 0.5f + 0.001357911f * static_cast<float>(i % 97);
}

struct Values {
  alignas(64) float x[16], y[16];
  Values() {
    for (int i = 0; i < 16; ++i) x[i] = start_value(i), y[i] = start_value(i + 16);
  }
};

// Each loop runs `steps` steps and returns the operations of one step.
using ComputeLoop = double (*)(std::int64_t steps);
using ReadLoop = void (*)(const char* begin, std::size_t bytes);

#if defined(__x86_64__)

__attribute__((target("avx512f"))) double fma_avx512(std::int64_t steps) {
  const Values values;
  const __m512 x = _mm512_load_ps(values.x), y = _mm512_load_ps(values.y);
#define SET(i) __m512 a##i = _mm512_add_ps(x, _mm512_set1_ps(static_cast<float>(i)));
#define STEP(i) a##i = _mm512_fmadd_ps(a##i, x, y);
#define SUM(i) sum = _mm512_add_ps(sum, a##i);
  EACH_CHAIN(SET)
  for (; steps > 0; --steps) {
    EACH_CHAIN(STEP)
    __asm__ volatile("");
  }
  __m512 sum = _mm512_setzero_ps();
  EACH_CHAIN(SUM)
  drain = _mm512_cvtss_f32(sum);
  return chains * 16 * 2;
#undef SET
#undef STEP
#undef SUM
}

__attribute__((target("avx512f,avx512bf16"))) double bf16_avx512(std::int64_t steps) {
  const Values values;
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_load_ps(values.x), _mm512_load_ps(values.y));
  const __m512bh y = _mm512_cvtne2ps_pbh(_mm512_load_ps(values.y), _mm512_load_ps(values.x));
#define SET(i) __m512 a##i = _mm512_set1_ps(static_cast<float>(i));
#define STEP(i) a##i = _mm512_dpbf16_ps(a##i, x, y);
#define SUM(i) sum = _mm512_add_ps(sum, a##i);
  EACH_CHAIN(SET)
  for (; steps > 0; --steps) {
    EACH_CHAIN(STEP)
    __asm__ volatile("");
  }
  __m512 sum = _mm512_setzero_ps();
  EACH_CHAIN(SUM)
  drain = _mm512_cvtss_f32(sum);
  return chains * 32 * 2;
#undef SET
#undef STEP
#undef SUM
}

__attribute__((target("avx2,fma"))) double fma_avx2(std::int64_t steps) {
  const Values values;
  const __m256 x = _mm256_load_ps(values.x), y = _mm256_load_ps(values.y);
#define SET(i) __m256 a##i = _mm256_add_ps(x, _mm256_set1_ps(static_cast<float>(i)));
#define STEP(i) a##i = _mm256_fmadd_ps(a##i, x, y);
#define SUM(i) sum = _mm256_add_ps(sum, a##i);
  EACH_CHAIN(SET)
  for (; steps > 0; --steps) {
    EACH_CHAIN(STEP)
    __asm__ volatile("");
  }
  __m256 sum = _mm256_setzero_ps();
  EACH_CHAIN(SUM)
  drain = _mm256_cvtss_f32(sum);
  return chains * 8 * 2;
#undef SET
#undef STEP
#undef SUM
}

__attribute__((target("avx512f"))) void read_avx512(const char* begin, std::size_t bytes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
    a = _mm512_or_si512(a, _mm512_loadu_si512(begin + i));
    b = _mm512_or_si512(b, _mm512_loadu_si512(begin + i + 64));
    c = _mm512_or_si512(c, _mm512_loadu_si512(begin + i + 128));
    d = _mm512_or_si512(d, _mm512_loadu_si512(begin + i + 192));
  }
  alignas(64) float out[16];
  _mm512_store_si512(out, _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)));
  drain = out[0];
}

#endif

// Any machine: 4-wide vectors, with a fused multiply-add where the compiler's baseline has one.
using Lanes = float __attribute__((vector_size(16)));

Lanes multiply_add(Lanes a, Lanes x, Lanes y) {
#if defined(__FP_FAST_FMAF)
  for (int i = 0; i < 4; ++i) a[i] = __builtin_fmaf(a[i], x[i], y[i]);
  return a;
#else
  return a * x + y;
#endif
}

double fma_portable(std::int64_t steps) {
  const Values values;
  const Lanes x = {values.x[0], values.x[1], values.x[2], values.x[3]};
  const Lanes y = {values.y[0], values.y[1], values.y[2], values.y[3]};
#define SET(i) Lanes a##i = x + static_cast<float>(i);
#define STEP(i) a##i = multiply_add(a##i, x, y);
#define SUM(i) sum += a##i;
  EACH_CHAIN(SET)
  for (; steps > 0; --steps) {
    EACH_CHAIN(STEP)
    __asm__ volatile("");
  }
  Lanes sum = {0, 0, 0, 0};
  EACH_CHAIN(SUM)
  drain = sum[0];
  return chains * 4 * 2;
#undef SET
#undef STEP
#undef SUM
}

void read_portable(const char* begin, std::size_t bytes) {
  Lanes a = {0, 0, 0, 0}, b = a, c = a, d = a;
  const Lanes* lanes = reinterpret_cast<const Lanes*>(begin);
  for (std::size_t i = 0; i + 4 <= bytes / sizeof(Lanes); i += 4) {
    a += lanes[i], b += lanes[i + 1], c += lanes[i + 2], d += lanes[i + 3];
  }
  a += b + c + d;
  drain = a[0];
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Starts `work(thread)` in every thread at once; seconds from the first start to the last end.
template <class Work>
double in_threads(int threads, const Work& work) {
  std::atomic<int> waiting{threads};
  std::vector<double> started(static_cast<std::size_t>(threads)), ended(started.size());
  const auto run = [&](int thread) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) {
    }
    started[static_cast<std::size_t>(thread)] = now();
    work(thread);
    ended[static_cast<std::size_t>(thread)] = now();
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  return *std::max_element(ended.begin(), ended.end()) - *std::min_element(started.begin(), started.end());
}

// The best of five: a roof is what can be reached, and whatever disturbs a measurement only lowers it.
constexpr int tries = 5;

double compute(ComputeLoop loop, int threads, double seconds) {
  std::int64_t steps = 1000;
  while (in_threads(1, [&](int) { loop(steps); }) < 0.001) steps *= 2;
  const double one = in_threads(1, [&](int) { loop(steps); });
  steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(steps) * seconds / tries / one));
  double best = 0, operations = 0;
  for (int i = 0; i < tries; ++i) {
    const double took = in_threads(threads, [&](int thread) {
      const double each = loop(steps);
      if (thread == 0) operations = each;
    });
    best = std::max(best, operations * static_cast<double>(steps) * threads / took);
  }
  return best;
}

}  // namespace

Roof fma_roof(int threads, double seconds) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {compute(fma_avx512, threads, seconds), "AVX-512 FMA"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {compute(fma_avx2, threads, seconds), "AVX2 FMA"};
  }
#endif
  return {compute(fma_portable, threads, seconds), "128-bit multiply and add"};
}

Roof bf16_roof(int threads, double seconds) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16")) {
    return {compute(bf16_avx512, threads, seconds), "AVX-512 bf16 dot"};
  }
#endif
  return fma_roof(threads, seconds);
}

Roof read_roof(int threads, const void* memory, std::size_t bytes, double seconds) {
  ReadLoop loop = read_portable;
  std::string name = "128-bit loads";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) loop = read_avx512, name = "AVX-512 loads";
#endif
  const std::size_t part = bytes / static_cast<std::size_t>(threads) / 4096 * 4096;
  double best = 0;
  const double end = now() + seconds;
  do {
    const double took = in_threads(threads, [&](int thread) {
      loop(static_cast<const char*>(memory) + part * static_cast<std::size_t>(thread), part);
    });
    best = std::max(best, static_cast<double>(part) * threads / took);
  } while (now() < end);
  return {best, name};
}

}  // namespace attend::bench
