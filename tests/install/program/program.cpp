#include <attend/attend.h>

#include <cstdio>

int main() {
#if ATTEND_VERSION < 10000
#error "expected 1.0.0 or later"
#endif
  std::printf("attend %s ", ATTEND_VERSION_STRING);
  const attend::Tensor x = attend::Tensor::from({2, 2}, {1, 0, 0, 1});
  std::printf("%.4f ", attend::attention(x, x, x).out.item({0, 0}));
  try {
    attend::attention(x, attend::Tensor({2, 3}), x);
  } catch (const attend::Error&) {
    std::puts("caught");
  }
}
