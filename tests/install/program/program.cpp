#include <attend/attend.h>

#include <cstdio>

int main() {
  const attend::Tensor x = attend::Tensor::from({2, 2}, {1, 0, 0, 1});
  std::printf("%.4f ", attend::attention(x, x, x).out.item({0, 0}));
  try {
    attend::attention(x, attend::Tensor({2, 3}), x);
  } catch (const attend::Error&) {
    std::puts("caught");
  }
}
