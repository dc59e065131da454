// One test a document: every tensor that it computes (tests/golden/document_*.npz, made with PyTorch), and every number
// that it prints, as it prints it.
#include <map>

#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_close;

// Of the tensor's largest magnitude: PyTorch's own rounding in f32, a few ulp of sums of up to 28 products.
// What is drawn, not computed, agrees to the last bit.
constexpr double tolerance = 2e-6;

using Names = std::map<std::string, std::string>;  // the trace's name, the document's name

void expect_golden(const Trace& trace, const std::string& document, const Names& names) {
  const TensorMap golden = read_npz(test::data("golden/document_" + document + ".npz"));
  for (const auto& [name, tensor] : trace.tensors()) {
    const auto found = names.find(name);
    if (found == names.end()) continue;
    const std::string what = document + " " + trace.preset + " " + name;
    const bool drawn = name.starts_with("embeddings") || name.starts_with("w_");
    if (drawn) {
      test::expect_same(tensor, golden.at(found->second), what);
    } else {
      expect_close(tensor, golden.at(found->second), tolerance, what);
    }
  }
  if (golden.contains("ids")) {
    const View ids(trace.ids.data(), DType::i64, {static_cast<std::int64_t>(trace.ids.size())});
    expect_close(ids, golden.at("ids"), 0, "ids");
  }
  for (const auto& [name, theirs] : names) {
    const auto same = [&name = name](const auto& pair) { return pair.first == name; };
    EXPECT_TRUE(std::ranges::any_of(trace.tensors(), same)) << name << " is not in the trace";
  }
}

// "multi." or "cross." in front of each of the document's names.
Names prefixed(const std::string& prefix, const Names& names) {
  Names out;
  for (const auto& [name, theirs] : names) out[name] = prefix + theirs;
  return out;
}

void expect_scaled(const Trace& trace, double divisor) {
  for (std::int64_t i = 0; i < trace.scores.count(); ++i) {
    const double expected = trace.scores.data<float>()[i] / divisor;
    EXPECT_NEAR(trace.scaled_scores.data<float>()[i], expected, 1e-6 * std::abs(expected));
  }
}

std::string row(const Tensor& tensor, std::int64_t index) {
  return format_tensor(tensor.view().select(0, index));
}

const Names life_names{{"w_query", "W_query"}, {"w_key", "W_key"},     {"w_value", "W_value"},
                       {"queries", "queries"}, {"keys", "keys"},       {"values", "values"},
                       {"scores", "omega"},    {"weights", "weights"}, {"context", "context"}};

Names with_x(Names names) {
  names["embeddings"] = "x";
  return names;
}

constexpr const char* printed_embeddings =
    R"(tensor([[ 0.3374, -0.1778, -0.3035, -0.5880,  0.3486,  0.6603, -0.2196, -0.3792,
          0.7671, -1.1925,  0.6984, -1.4097,  0.1794,  1.8951,  0.4954,  0.2692],
        [ 0.5146,  0.9938, -0.2587, -1.0826, -0.0444,  1.6236, -2.3229,  1.0878,
          0.6716,  0.6933, -0.9487, -0.0765, -0.1526,  0.1167,  0.4403, -1.4465],
        [ 0.2553, -0.5496,  1.0042,  0.8272, -0.3948,  0.4892, -0.2168, -1.7472,
         -1.6025, -1.0764,  0.9031, -0.7218, -0.5951, -0.7112,  0.6230, -1.3729],
        [-1.3250,  0.1784, -2.1338,  1.0524, -0.3885, -0.9343, -0.4991, -1.0867,
          0.8805,  1.5542,  0.6266, -0.1755,  0.0983, -0.0935,  0.2662, -0.5850],
        [-0.0770, -1.0205, -0.1690,  0.9178,  1.5810,  1.3010,  1.2753, -0.2010,
          0.4965, -1.5723,  0.9666, -1.1481, -1.1589,  0.3255, -0.6315, -2.8400],
        [ 0.8768,  1.6221, -1.4779,  1.1331, -1.2203,  1.3139,  1.0533,  0.1388,
          2.2473, -0.8036, -0.2808,  0.7697, -0.6596, -0.7979,  0.1838,  0.2293]]))";

constexpr const char* printed_context_002 =
    R"(tensor([-1.5993,  0.0156,  1.2670,  0.0032, -0.6460, -1.1407, -0.4908, -1.4632,
         0.4747,  1.1926,  0.4506, -0.7110,  0.0602,  0.7125, -0.1628, -2.0184,
         0.3838, -2.1188, -0.8136, -1.5694,  0.7934, -0.2911, -1.3640, -0.2366,
        -0.9564, -0.5265,  0.0624,  1.7084]))";

void expect_life(const Trace& trace) {
  EXPECT_EQ(trace.tokens, (std::vector<std::string>{"Life", "is", "short", "eat", "dessert", "first"}));
  EXPECT_EQ(trace.ids, (std::vector<std::int64_t>{0, 4, 5, 2, 1, 3}));
  EXPECT_EQ(format_tensor(trace.embeddings), printed_embeddings);
  EXPECT_EQ(trace.queries.shape(), Dims({6, 24}));
  EXPECT_EQ(trace.keys.shape(), Dims({6, 24}));
  EXPECT_EQ(trace.values.shape(), Dims({6, 28}));
  expect_scaled(trace, std::sqrt(24));
}

void expect_life_multihead(const Trace& trace, const std::string& document) {
  expect_golden(trace, document, prefixed("multi.", life_names));
  expect_golden(trace, document, {{"embeddings", "x"}});
  EXPECT_EQ(trace.queries.shape(), Dims({3, 6, 24}));
  EXPECT_EQ(trace.keys.shape(), Dims({3, 6, 24}));
  EXPECT_EQ(trace.values.shape(), Dims({3, 6, 28}));
  expect_scaled(trace, std::sqrt(24));
}

TEST(Document000, ContinuesTheGenerator) {
  const Trace trace = explain_preset("life-continued");
  expect_golden(trace, "000", with_x(life_names));
  expect_life(trace);
  EXPECT_EQ(row(trace.scores, 1), "tensor([ -7.0847,  -4.5398,   3.9887,  10.2379,   2.3206, -10.5434])");
  EXPECT_EQ(row(trace.weights, 1), "tensor([0.0185, 0.0312, 0.1778, 0.6368, 0.1265, 0.0092])");
  EXPECT_EQ(row(trace.context, 1),
            R"(tensor([-0.9495, -1.4345, -2.0504, -0.3737, -1.5098, -0.5921, -0.4289, -1.9790,
        -1.7937, -0.7146, -0.9926, -2.0061, -2.1961, -1.7174, -1.0732, -0.7900,
        -1.7367, -2.2095, -0.9344, -1.5299, -0.2828, -0.5350, -1.7285, -1.5485,
        -0.2043, -0.7109, -1.5165, -1.5167]))");
  expect_life_multihead(explain_preset("life-continued-multihead"), "000");
}

TEST(Document001, JourneyWithParametersAndWithLinear) {
  const Trace trace = explain_preset("journey");
  EXPECT_EQ(trace.tokens, (std::vector<std::string>{"Your", "journey", "starts", "with", "one", "step"}));
  expect_golden(trace, "001",
                {{"embeddings", "inputs"},
                 {"w_query", "W_query"},
                 {"w_key", "W_key"},
                 {"w_value", "W_value"},
                 {"queries", "queries"},
                 {"keys", "keys"},
                 {"values", "values"},
                 {"scores", "attn_scores"},
                 {"weights", "attn_weights"},
                 {"context", "context_vec"}});
  expect_scaled(trace, std::sqrt(2));
  EXPECT_EQ(format_tensor(trace.w_query),
            "tensor([[0.2961, 0.5166],\n        [0.2517, 0.6886],\n        [0.0740, 0.8665]])");
  EXPECT_EQ(format_tensor(trace.w_key),
            "tensor([[0.1366, 0.1025],\n        [0.1841, 0.7264],\n        [0.3153, 0.6871]])");
  EXPECT_EQ(format_tensor(trace.w_value),
            "tensor([[0.0756, 0.1966],\n        [0.3164, 0.4017],\n        [0.1186, 0.8274]])");
  EXPECT_EQ(row(trace.queries, 1), "tensor([0.4306, 1.4551])");
  EXPECT_EQ(row(trace.keys, 1), "tensor([0.4433, 1.1419])");
  EXPECT_EQ(row(trace.values, 1), "tensor([0.3951, 1.0037])");
  EXPECT_EQ(format_tensor(trace.scores.view().select(0, 1).select(0, 1)), "tensor(1.8524)");
  EXPECT_EQ(format_tensor(trace.scores), R"(tensor([[0.9231, 1.3545, 1.3241, 0.7910, 0.4032, 1.1330],
        [1.2705, 1.8524, 1.8111, 1.0795, 0.5577, 1.5440],
        [1.2544, 1.8284, 1.7877, 1.0654, 0.5508, 1.5238],
        [0.6973, 1.0167, 0.9941, 0.5925, 0.3061, 0.8475],
        [0.6114, 0.8819, 0.8626, 0.5121, 0.2707, 0.7307],
        [0.8995, 1.3165, 1.2871, 0.7682, 0.3937, 1.0996]]))");
  EXPECT_EQ(format_tensor(trace.weights), R"(tensor([[0.1551, 0.2104, 0.2059, 0.1413, 0.1074, 0.1799],
        [0.1500, 0.2264, 0.2199, 0.1311, 0.0906, 0.1820],
        [0.1503, 0.2256, 0.2192, 0.1315, 0.0914, 0.1819],
        [0.1591, 0.1994, 0.1962, 0.1477, 0.1206, 0.1769],
        [0.1610, 0.1949, 0.1923, 0.1501, 0.1265, 0.1752],
        [0.1557, 0.2092, 0.2048, 0.1419, 0.1089, 0.1794]]))");
  EXPECT_EQ(format_tensor(trace.context), R"(tensor([[0.2996, 0.8053],
        [0.3061, 0.8210],
        [0.3058, 0.8203],
        [0.2948, 0.7939],
        [0.2927, 0.7891],
        [0.2990, 0.8040]]))");

  const Trace linear = explain_preset("journey-linear");
  expect_golden(linear, "001",
                {{"embeddings", "inputs"},
                 {"w_query", "v2.W_query"},
                 {"w_key", "v2.W_key"},
                 {"w_value", "v2.W_value"},
                 {"weights", "v2.attn_weights"},
                 {"context", "v2.context_vec"}});
  expect_scaled(linear, std::sqrt(2));
  EXPECT_EQ(format_tensor(linear.context), R"(tensor([[0.5085, 0.3508],
        [0.5084, 0.3508],
        [0.5084, 0.3506],
        [0.5074, 0.3471],
        [0.5076, 0.3446],
        [0.5077, 0.3493]]))");
  EXPECT_EQ(format_tensor(linear.w_key), "tensor([[-0.2604,  0.1829, -0.2569],\n        [ 0.4126,  0.4611, -0.5323]])");
  EXPECT_EQ(format_tensor(linear.w_query),
            "tensor([[-0.1362,  0.1853,  0.4083],\n        [ 0.1076,  0.1579,  0.5573]])");
  EXPECT_EQ(format_tensor(linear.w_value),
            "tensor([[ 0.4929,  0.2757,  0.2516],\n        [ 0.2377,  0.4800, -0.0762]])");
}

void expect_life_seeded_again(const std::string& document) {
  const Trace trace = explain_preset("life");
  expect_golden(trace, document, with_x(life_names));
  expect_life(trace);
  EXPECT_EQ(row(trace.scores, 1), "tensor([ 8.5808, -7.6597,  3.2558,  1.0395, 11.1466, -0.4800])");
  EXPECT_EQ(row(trace.weights, 1), "tensor([0.2912, 0.0106, 0.0982, 0.0625, 0.4917, 0.0458])");
  EXPECT_EQ(row(trace.context, 1), printed_context_002);
  expect_life_multihead(explain_preset("life-multihead"), document);
}

TEST(Document002, SeedsAgainAndCrosses) {
  expect_life_seeded_again("002");
  EXPECT_EQ(format_tensor(explain_preset("life").scores.view().select(0, 1).select(0, 4)), "tensor(11.1466)");
  const Trace cross = explain_preset("life-cross");
  expect_golden(cross, "002", prefixed("cross.", life_names));
  expect_golden(cross, "002", {{"embeddings", "x"}, {"embeddings_2", "cross.x2"}});
  expect_scaled(cross, std::sqrt(24));
  EXPECT_EQ(cross.keys.shape(), Dims({8, 24}));
  EXPECT_EQ(cross.values.shape(), Dims({8, 28}));
}

TEST(Document003, MyNameWithOneHeadAndFour) {
  const Trace trace = explain_preset("my-name");
  EXPECT_EQ(trace.tokens, (std::vector<std::string>{"my", "name", "is", "Marcello", "Politi"}));
  EXPECT_EQ(trace.ids, (std::vector<std::int64_t>{2, 6, 8, 3, 1}));
  expect_golden(trace, "003",
                {{"embeddings", "x"},
                 {"w_query", "w_query"},
                 {"w_key", "w_key"},
                 {"w_value", "w_value"},
                 {"queries", "queries"},
                 {"keys", "keys"},
                 {"values", "values"},
                 {"weights", "weights"},
                 {"context", "context"}});
  expect_scaled(trace, 4);

  const Trace multi = explain_preset("my-name-multihead");
  expect_golden(multi, "003",
                prefixed("multi.", {{"w_query", "w_query"},
                                    {"w_key", "w_key"},
                                    {"w_value", "w_value"},
                                    {"w_output", "w_output"},
                                    {"queries", "queries"},
                                    {"keys", "keys"},
                                    {"values", "values"},
                                    {"scaled_scores", "scores"},
                                    {"weights", "weights"},
                                    {"context", "head_outputs"},
                                    {"concat_heads", "concat_heads"},
                                    {"output", "output"}}));
  expect_golden(multi, "003", {{"embeddings", "x"}});
  expect_scaled(multi, 2);
  EXPECT_EQ(multi.w_query.shape(), Dims({4, 16, 4}));
  EXPECT_EQ(multi.queries.shape(), Dims({4, 5, 4}));
}

TEST(Document004, IsDocument002WithoutTheCross) {
  expect_life_seeded_again("004");
}

}  // namespace
}  // namespace attend
