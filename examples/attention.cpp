// Attention on your own numbers: two heads, four queries and six keys, each query blind to the keys after it.
#include <attend/attend.h>

#include <iostream>

int main() {
  try {
    attend::Generator generator(42);
    const attend::Tensor q = generator.randn({1, 2, 4, 8});  // [B,H,Tq,D]
    const attend::Tensor k = generator.randn({1, 2, 6, 8});  // [B,H,Tk,D]
    const attend::Tensor v = generator.randn({1, 2, 6, 3});  // [B,H,Tk,Dv]

    const attend::AttentionOptions options{.causal = true, .offset = attend::Offset::bottom_right()};
    const attend::AttentionResult result = attend::attention(q, k, v, options);
    std::cout << attend::format_tensor(result.out) << '\n' << attend::format_tensor(result.lse) << '\n';
  } catch (const attend::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
