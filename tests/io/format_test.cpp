#include "io/format.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/expect.h"

namespace attend {
namespace {

DType dtype_named(const std::string& name) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i8, DType::u8, DType::boolean}) {
    if (name_of(dtype) == name) return dtype;
  }
  throw std::runtime_error("no dtype " + name);
}

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

// A tensor of the case's shape, filled with its values over and over.
Tensor tensor_of(const nlohmann::json& one) {
  const auto sizes = one["shape"].get<std::vector<std::int64_t>>();
  Tensor tensor(Dims(std::span<const std::int64_t>(sizes)), dtype_named(one["dtype"]));
  const std::string bytes = bytes_of(one["bits"]);
  auto* to = static_cast<char*>(tensor.raw());
  const auto total = static_cast<std::size_t>(tensor.count() * size_of(tensor.dtype()));
  for (std::size_t i = 0; i < total; ++i) to[i] = bytes[i % bytes.size()];
  return tensor;
}

TEST(Format, EveryTensorReadsAsInTorch) {
  std::ifstream file(test::data("golden/tensor_strings.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const nlohmann::json one = nlohmann::json::parse(line);
    EXPECT_EQ(format_tensor(tensor_of(one)), one["text"].get<std::string>()) << line.substr(0, 100);
  }
  EXPECT_GE(cases, 120);
}

TEST(Format, AnyStridesReadTheSame) {
  Tensor tensor({5, 7});
  for (std::int64_t i = 0; i < 35; ++i) tensor.data<float>()[i] = static_cast<float>(i) / 8;
  const View turned = tensor.view().transpose(0, 1);
  EXPECT_EQ(format_tensor(turned), format_tensor(turned.clone()));
  EXPECT_EQ(format_tensor(turned.slice(0, 1, 7, 3)), format_tensor(turned.slice(0, 1, 7, 3).clone()));
  EXPECT_EQ(format_tensor(Tensor::from({1}, {1.5F}).view().broadcast_to({2, 2})),
            "tensor([[1.5000, 1.5000],\n        [1.5000, 1.5000]])");
}

TEST(Format, ValuesAloneTakeAnyIndentAndWidth) {
  const Tensor matrix = Tensor::from({2, 4}, {0.5F, -1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(format_values(matrix, 0, 80),
            "[[ 0.5000, -1.0000,  2.0000,  3.0000],\n"
            " [ 4.0000,  5.0000,  6.0000,  7.0000]]");
  EXPECT_EQ(format_values(matrix, 2, 22),
            "[[ 0.5000, -1.0000,\n"
            "     2.0000,  3.0000],\n"
            "   [ 4.0000,  5.0000,\n"
            "     6.0000,  7.0000]]");
  EXPECT_EQ(format_values(matrix, 40, 10).find(",  2"), std::string::npos);  // one number a line
}

TEST(Format, ANegativeNanHasNoSign) {
  EXPECT_EQ(format_tensor(Tensor::from({2}, {-NAN, 1})), "tensor([nan, 1.])");
}

}  // namespace
}  // namespace attend
