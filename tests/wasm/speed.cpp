// How long attention() takes in a browser: scripts/page_engine_speed.sh.
#include <attend/attend.h>

#include <chrono>

// The milliseconds of one call, f32, one head of D numbers, as many queries as keys.
extern "C" double attend_attention_ms(int tokens, int D) {
  using Clock = std::chrono::steady_clock;
  attend::Generator generator(1);
  const attend::Tensor q = generator.randn({tokens, D}), k = generator.randn({tokens, D}),
                       v = generator.randn({tokens, D});
  const Clock::time_point begin = Clock::now();
  const attend::AttentionResult result = attend::attention(q, k, v);
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}
