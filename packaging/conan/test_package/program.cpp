#include <attend/attend.h>

#include <cstdio>

int main() {
  const attend::Tensor x = attend::Tensor::from({2, 2}, {1, 0, 0, 1});
  std::printf("attend %s %.4f\n", ATTEND_VERSION_STRING, attend::attention(x, x, x).out.item({0, 0}));
}
