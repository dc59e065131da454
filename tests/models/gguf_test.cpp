#include "models/gguf/read.h"

#include <zlib.h>

#include <bit>
#include <fstream>
#include <limits>
#include <random>
#include <set>

#include "models/gguf/config.h"
#include "models/gguf/file.h"
#include "models/gguf/own_keys.h"
#include "models/gguf/quantize_row.h"
#include "tests/io/files.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using models::Gguf;
using models::gguf_tokenizer;
using models::GgufFile;
using models::read_gguf;
using nlohmann::json;
using test::bytes_of;
using test::expect_error;
using test::Folder;
using test::put;

const json& golden() {
  static const json data = json::parse(std::ifstream(test::data("golden/gguf.json")));
  return data;
}

std::filesystem::path file(const std::string& name) {
  return test::data("golden/gguf/" + name);
}

// ---- What is right ----

TEST(Gguf, WeightsAsTransformersHasThem) {
  for (const std::string name : {"llama.gguf", "sentencepiece.gguf", "qwen2.gguf"}) {
    SCOPED_TRACE(name);
    const Gguf found = read_gguf("load", file(name));
    const json& expected = golden()[name]["tensors"];
    EXPECT_EQ(found.weights.all().size(), expected.size());
    for (const auto& [tensor, of] : expected.items()) {
      SCOPED_TRACE(tensor);
      const models::Matrix* matrix = found.weights.find(tensor);
      ASSERT_NE(matrix, nullptr);
      const Tensor numbers = models::numbers(*matrix);
      EXPECT_EQ(numbers.shape().str(), of["shape"].dump());
      const auto bytes = static_cast<uInt>(numbers.count() * 4);
      EXPECT_EQ(crc32(0, static_cast<const Bytef*>(numbers.raw()), bytes), of["crc32"].get<unsigned long>());
    }
  }
}

TEST(Gguf, ConfigurationAsTransformersHasIt) {
  for (const std::string name : {"llama.gguf", "sentencepiece.gguf", "qwen2.gguf"}) {
    SCOPED_TRACE(name);
    const json config = read_gguf("load", file(name)).config;
    for (const auto& [key, value] : golden()[name]["config"].items()) EXPECT_EQ(config[key], value) << key;
    EXPECT_EQ(config["head_dim"], 16);
    EXPECT_EQ(config["torch_dtype"], "float32");
    EXPECT_EQ(config["attention_bias"], name == "qwen2.gguf");
    EXPECT_EQ(config["architectures"], json::array({name == "qwen2.gguf" ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}));
  }
}

TEST(Gguf, NumbersStayInTheFileWhereTheyAreInOrder) {
  const Gguf found = read_gguf("load", file("sentencepiece.gguf"));
  const std::string layer = "model.layers.0.";
  const auto dtype = [&](const std::string& name) { return found.weights.find(layer + name)->view.dtype(); };
  EXPECT_EQ(dtype("self_attn.q_proj.weight"), DType::f16);
  EXPECT_EQ(dtype("self_attn.k_proj.weight"), DType::bf16);
  EXPECT_EQ(dtype("self_attn.v_proj.weight"), DType::f32);
  EXPECT_EQ(dtype("self_attn.o_proj.weight"), DType::f16);
  // One map: what follows in the file, follows in memory.
  const auto* norm = found.weights.find(layer + "input_layernorm.weight")->view.data<float>();
  EXPECT_EQ(found.weights.find(layer + "post_attention_layernorm.weight")->view.data<float>(), norm + 32);
}

TEST(Gguf, TokenizersAsThePackageTokenizers) {
  ASSERT_EQ(golden().size(), 6);
  for (const auto& [name, of] : golden().items()) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = Model::load_tokenizer(file(name));
    for (const json& one : of["texts"]) {
      SCOPED_TRACE(one.dump());
      const std::string text = one["text"];
      const Encoding found =
          one["pair"].is_null() ? tokenizer.encode(text) : tokenizer.encode_pair(text, one["pair"].get<std::string>());
      EXPECT_EQ(json(found.ids), one["ids"]);
      EXPECT_EQ(json(found.types), one["types"]);
      EXPECT_EQ(json(std::vector<int>(found.special.begin(), found.special.end())), one["special"]);
      EXPECT_EQ(tokenizer.decode(found.ids), one["decoded"].get<std::string>());
    }
  }
}

TEST(Gguf, MergesAreDerivedAsTransformersDerivesThem) {
  const GgufFile from("load", file("sentencepiece.gguf"));
  const std::vector<std::string> tokens = from.texts("tokenizer.ggml.tokens");
  tokenizer::TokenMap ids;
  for (std::size_t id = 0; id < tokens.size(); ++id) ids.add(tokens[id], static_cast<tokenizer::TokenId>(id));
  json merges = json::array();
  for (const tokenizer::Merge& each : models::derive_merges(tokens, from.numbers("tokenizer.ggml.scores"), ids))
    merges.push_back({tokens[each.first], tokens[each.second]});
  EXPECT_EQ(merges, golden()["sentencepiece.gguf"]["merges"]);
}

TEST(Gguf, SentencesArePooledAsTheFileSays) {
  const auto mode = [](const json& config) {
    return models::gguf_sentences(Member(Place{"load"}, config), 8, 16).pooling.modes.front();
  };
  EXPECT_EQ(mode({{"pooling_type", 1}}), models::PoolingMode::mean);
  EXPECT_EQ(mode({{"pooling_type", 2}}), models::PoolingMode::cls);
  EXPECT_EQ(mode({{"pooling_type", 3}}), models::PoolingMode::last_token);
  EXPECT_EQ(mode({{"architectures", {"BertModel"}}}), models::PoolingMode::mean);
  expect_error(
      ErrorCode::bad_file,
      [&] {
        mode({{"pooling_type", 4}});
      },
      "load: ", "4 is not known here; 1 (mean), 2 (cls)");
}

// ---- What is written ----

TEST(Gguf, RowsInBlocksHaveTheBitsOfThePackageGguf) {
  const json data = json::parse(std::ifstream(test::data("golden/gguf_rows.json")));
  std::vector<float> numbers;
  for (const auto bits : data["numbers"].get<std::vector<std::uint32_t>>())
    numbers.push_back(std::bit_cast<float>(bits));
  for (const auto& [name, type] : {std::pair("Q8_0", models::GgufType::q8_0), {"Q4_0", models::GgufType::q4_0}}) {
    std::vector<std::byte> made(models::bytes_of_row(type, std::ssize(numbers)));
    models::quantize_row(type, numbers.data(), std::ssize(numbers), made.data());
    std::string hex;
    for (const std::byte each : made) hex += fmt::format("{:02x}", std::to_integer<int>(each));
    EXPECT_EQ(hex, data[name].get<std::string>()) << name;
  }
}

// ---- What is refused ----

// A file as the test likes it. Types: 4 u32, 6 f32, 7 bool, 8 text, 9 an array.
class Maker {
 public:
  Maker& value(const std::string& key, std::uint32_t type, const std::string& bytes) {
    values_ += text(key) + bytes_of(type) + bytes, ++value_count_;
    return *this;
  }
  Maker& whole(const std::string& key, std::uint32_t number) { return value(key, 4, bytes_of(number)); }
  Maker& word(const std::string& key, const std::string& word) { return value(key, 8, text(word)); }
  Maker& words(const std::string& key, const std::vector<std::string>& words) {
    std::string bytes = bytes_of(std::uint32_t{8}) + bytes_of(std::uint64_t{words.size()});
    for (const std::string& word : words) bytes += text(word);
    return value(key, 9, bytes);
  }
  Maker& tensor(const std::string& name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                std::uint64_t offset) {
    tensors_ += text(name) + bytes_of(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) tensors_ += bytes_of(size);
    tensors_ += bytes_of(type) + bytes_of(offset), ++tensor_count_;
    return *this;
  }
  Maker& data(std::size_t bytes) {
    data_ = bytes;
    return *this;
  }
  std::string bytes(std::uint32_t version = 3) const {
    std::string out =
        "GGUF" + bytes_of(version) + bytes_of(tensor_count_) + bytes_of(value_count_) + values_ + tensors_;
    out.append((32 - out.size() % 32) % 32, '\0');
    return out + std::string(data_, '\0');
  }
  static std::string text(const std::string& of) { return bytes_of(std::uint64_t{of.size()}) + of; }

 private:
  std::string values_, tensors_;
  std::uint64_t value_count_ = 0, tensor_count_ = 0;
  std::size_t data_ = 0;
};

// A model without a layer's tensors, which the reader leaves to who asks for them.
Maker model(const std::string& architecture = "llama", std::uint32_t heads = 2, float epsilon = 1e-5f,
            std::uint32_t layers = 32) {
  Maker out;
  out.word("general.architecture", architecture).whole(architecture + ".block_count", layers);
  for (const char* key : {"context_length", "embedding_length", "feed_forward_length", "vocab_size"}) {
    out.whole(architecture + "." + key, 32);
  }
  out.whole(architecture + ".attention.head_count", heads);
  return out.value(architecture + ".attention.layer_norm_rms_epsilon", 6, bytes_of(epsilon));
}

// Llama 3.1's: what each frequency is divided by.
std::string with_divisors(const std::vector<float>& numbers, const std::string& architecture = "llama",
                          std::uint32_t type = 0) {
  const std::string bytes = model(architecture).tensor("rope_freqs.weight", {numbers.size()}, type, 0).data(32).bytes();
  std::string data;
  for (const float number : numbers) data += bytes_of(number);
  return bytes.substr(0, bytes.size() - 32) + data + std::string(32 - data.size(), '\0');
}

// An array of f32.
std::string floats(const std::vector<float>& numbers) {
  std::string bytes = bytes_of(std::uint32_t{6}) + bytes_of(std::uint64_t{numbers.size()});
  for (const float number : numbers) bytes += bytes_of(number);
  return bytes;
}

void expect_refused(const std::string& bytes, const std::string& text) {
  SCOPED_TRACE(text);
  const Folder folder;
  put(folder / "x.gguf", bytes);
  expect_error(
      ErrorCode::bad_file, [&] { read_gguf("load", folder / "x.gguf"); },
      "load: '" + (folder / "x.gguf").string() + "'", text);
}

TEST(Gguf, AFileIsWrittenAgainValueByValue) {
  const Folder folder;
  put(folder / "x.gguf", model()
                             .words("tokenizer.ggml.tokens", {"a", "b"})
                             .value("x", 7, std::string(1, '\1'))
                             .tensor("token_embd.weight", {32, 2}, 0, 0)
                             .tensor("output_norm.weight", {32}, 0, 256)
                             .tensor("blk.0.attn_q.weight", {16, 4}, 0, 384)
                             .data(640)
                             .bytes());
  const Quantized made = quantize(folder / "x.gguf", folder / "y.gguf", QuantizedType::q8_0);
  const GgufFile from("load", folder / "x.gguf"), to("load", folder / "y.gguf");
  EXPECT_EQ(to.find("token_embd.weight")->type, models::GgufType::q8_0);
  EXPECT_EQ(to.find("output_norm.weight")->type, models::GgufType::f32);
  EXPECT_EQ(to.find("blk.0.attn_q.weight")->type, models::GgufType::f16);
  EXPECT_EQ(made.quantized, 1);
  EXPECT_EQ(made.parameters, 160);
  EXPECT_EQ(static_cast<std::uint64_t>(made.bytes), std::filesystem::file_size(folder / "y.gguf"));
  for (const std::string_view key : from.keys()) EXPECT_EQ(to.bytes(key), from.bytes(key)) << key;
  expect_error(
      ErrorCode::bad_file, [&] { quantize(folder / "y.gguf", folder / "z.gguf", QuantizedType::q4_0); }, "quantize: '",
      "tensor 'token_embd.weight': is Q8_0 already");
  expect_error(
      ErrorCode::bad_value, [&] { quantize(folder / "x.gguf", folder / "z.gguf", QuantizedType::q2_k); },
      "quantize: ", "type is Q2_K, expected Q8_0, Q6_K, Q5_K, Q4_K or Q4_0");
}

// A model of one matrix of 64 rows of 256 numbers.
std::string of_one_matrix(std::vector<float> numbers) {
  const std::string bytes = model().tensor("blk.0.ffn_up.weight", {256, 64}, 0, 0).data(65536).bytes();
  numbers.resize(64 * 256);
  std::string data;
  for (const float number : numbers) data += bytes_of(number);
  return bytes.substr(0, bytes.size() - data.size()) + data;
}

constexpr QuantizedType of_files[] = {QuantizedType::q8_0, QuantizedType::q6_k, QuantizedType::q5_k,
                                      QuantizedType::q4_k, QuantizedType::q4_0};

TEST(Gguf, AFileIsTheSameByAnyNumberOfThreads) {
  const Folder folder;
  std::mt19937 random(1);
  std::vector<float> numbers(64 * 256);
  for (float& each : numbers) each = static_cast<float>(random()) * 0x1p-32F - 0.5F;
  put(folder / "x.gguf", of_one_matrix(numbers));
  for (const QuantizedType type : of_files) {
    std::set<std::string> files;
    for (const int threads : {1, 2, 5}) {
      const test::ThreadsAtMost limit(threads);
      quantize(folder / "x.gguf", folder / "y.gguf", type);
      std::ifstream file(folder / "y.gguf", std::ios::binary);
      files.emplace(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    EXPECT_EQ(files.size(), 1u) << name_of(type);
  }
}

TEST(Gguf, NumbersThatATypeCannotHaveAreRefused) {
  const Folder folder;
  for (const QuantizedType type : of_files) {
    for (const float number :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e30F}) {
      put(folder / "x.gguf", of_one_matrix({1, 2, number}));
      expect_error(
          ErrorCode::bad_file, [&] { quantize(folder / "x.gguf", folder / "y.gguf", type); }, "quantize: '",
          "'blk.0.ffn_up.weight' has numbers that " + std::string(name_of(type)) + " can't have");
      EXPECT_FALSE(std::filesystem::exists(folder / "y.gguf"));
    }
  }
}

TEST(Gguf, NamesOfKindsOfFiles) {
  EXPECT_EQ(file_type_named("q4_k_m"), QuantizedType::q4_k);
  EXPECT_EQ(file_type_named("q5_k_m"), QuantizedType::q5_k);
  EXPECT_EQ(file_type_named("q4_k"), std::nullopt);
  EXPECT_EQ(file_type_named(""), std::nullopt);
}

TEST(Gguf, EndsOfTextsTurnsAndMessagesEnd) {
  const auto ends = [](std::uint32_t turn, std::uint32_t message) {
    const Folder folder;
    put(folder / "x.gguf", model()
                               .whole("tokenizer.ggml.eos_token_id", 2)
                               .whole("tokenizer.ggml.eot_token_id", turn)
                               .whole("tokenizer.ggml.eom_token_id", message)
                               .bytes());
    return read_gguf("load", folder / "x.gguf").config["eos_token_id"];
  };
  EXPECT_EQ(ends(5, 7), json({2, 5, 7}));
  EXPECT_EQ(ends(2, 7), json({2, 7}));
  EXPECT_EQ(ends(2, 2), json(2));
}

TEST(Gguf, TheMakerOfTheseTestsIsRead) {
  const Folder folder;
  put(folder / "x.gguf", model().tensor("output_norm.weight", {32}, 0, 0).data(128).bytes(2));
  const Gguf found = read_gguf("load", folder / "x.gguf");
  EXPECT_EQ(found.weights.all().size(), 1U);
  EXPECT_EQ(found.config["rope_theta"], 10000.0);
  EXPECT_EQ(found.config["num_key_value_heads"], 2);
}

TEST(Gguf, DivisorsOfFrequenciesAreLongrope) {
  const Folder folder;
  put(folder / "x.gguf", with_divisors({1, 1, 1, 1, 1.5, 2, 4, 8}));
  const Gguf found = read_gguf("load", folder / "x.gguf");
  EXPECT_TRUE(found.weights.all().empty());
  const json expected = {{"rope_type", "longrope"},
                         {"rope_theta", 10000.0},
                         {"short_factor", {1, 1, 1, 1, 1.5, 2, 4, 8}},
                         {"long_factor", {1, 1, 1, 1, 1.5, 2, 4, 8}},
                         {"original_max_position_embeddings", 32},
                         {"attention_factor", 1.0}};
  EXPECT_EQ(found.config["rope_parameters"], expected);
  const std::string place = "tensor 'rope_freqs.weight': ";
  expect_refused(with_divisors({1, 1, 1, 1}), place + "F32 of shape [4], expected F32 of shape [8]");
  expect_refused(with_divisors({1, 1, 1, 1, 1, 1, 1, 1}, "llama", 1), place + "F16 of shape [8], expected F32");
  expect_refused(with_divisors({1, 1, 1, 1, 1, 1, 1, 0}), place + "has 0, expected numbers above 0");
  expect_refused(with_divisors({NAN, 1, 1, 1, 1, 1, 1, 1}), place + "has nan, expected numbers above 0");
  expect_refused(with_divisors({INFINITY, 1, 1, 1, 1, 1, 1, 1}), place + "has inf, expected numbers above 0");
  expect_refused(with_divisors({1, 1, 1, 1, 1, 1, 1, 1}, "qwen2"), "the tensor 'rope_freqs.weight' is not known");
}

// The largest ones' heads are larger than what their scores are scaled by.
TEST(Gguf, WhatScalesTheScoresOfGemmaIsKnownByTheLayers) {
  const auto scale = [](const std::string& architecture, std::uint32_t layers) {
    const auto key = [&](const char* name) { return architecture + "." + name; };
    const Folder folder;
    put(folder / "x.gguf", model(architecture, 2, 1e-5f, layers)
                               .whole(key("attention.sliding_window"), 4)
                               .whole(key("attention.key_length"), 24)
                               .whole(key("attention.value_length"), 24)
                               .value(key("rope.freq_base"), 6, bytes_of(1e6f))
                               .value(key("final_logit_softcapping"), 6, bytes_of(30.f))
                               .value(key("attn_logit_softcapping"), 6, bytes_of(50.f))
                               .bytes());
    return read_gguf("load", folder / "x.gguf").config["query_pre_attn_scalar"].get<int>();
  };
  EXPECT_EQ(scale("gemma2", 26), 24);
  EXPECT_EQ(scale("gemma2", 46), 16);
}

TEST(Gguf, NormsOfGemmaAreWithoutTheirOne) {
  const auto gemma = [](std::uint32_t type) {
    return model("gemma2")
        .whole("gemma2.attention.sliding_window", 4)
        .value("gemma2.attn_logit_softcapping", 6, bytes_of(50.f))
        .value("gemma2.final_logit_softcapping", 6, bytes_of(30.f))
        .tensor("output_norm.weight", {32}, type, 0)
        .tensor("token_embd.weight", {32, 1}, 0, type == 0 ? 128 : 64);
  };
  const Folder folder;
  put(folder / "x.gguf", gemma(0).data(256).bytes());
  const Gguf found = read_gguf("load", folder / "x.gguf");
  EXPECT_EQ(found.weights.find("model.norm.weight")->view.data<float>()[31], -1);
  EXPECT_EQ(found.weights.find("model.embed_tokens.weight")->view.data<float>()[31], 0);
  EXPECT_EQ(found.config["query_pre_attn_scalar"], 16);
  expect_refused(gemma(1).data(192).bytes(), "tensor 'output_norm.weight': F16 is not read for a norm; F32 is");
}

TEST(Gguf, ABrokenHeaderIsRefused) {
  expect_refused("", "is empty");
  expect_refused("GGML", "byte 0: is not a GGUF file");
  expect_refused(Maker().bytes(1), "byte 4: is of version 1; 2 and 3 are read");
  expect_refused(Maker().bytes(0x03000000), "byte 4: is big-endian");
  expect_refused(model().whole("llama.block_count", 1).bytes(), "'llama.block_count': comes twice");
  expect_refused(model().value("x", 13, "").bytes(), "'x': its type 13 is not known");
  expect_refused(model().value("x", 9, bytes_of(std::uint32_t{9}) + bytes_of(std::uint64_t{0})).bytes(),
                 "'x': an array of arrays is not read");
  expect_refused(model().value("x", 9, bytes_of(std::uint32_t{8}) + bytes_of(std::uint64_t{1} << 60)).bytes(),
                 "1152921504606846976 elements can't follow in");
  expect_refused(model().value("x", 7, "\2").bytes(), "a bool is neither 0 nor 1");
  expect_refused(model().value("", 7, "\1").bytes(), "a key has 0 bytes, expected 1 to 65535");
  expect_refused(model().word("x", "y").bytes().replace(8, 8, 8, '\x7f'), "tensors can't follow in");
  expect_refused(model().word("x", "y").bytes().replace(16, 8, 8, '\x7f'), "values can't follow in");
  expect_refused(model().whole("general.alignment", 24).bytes(), "'general.alignment': 24 is not a power of two");
  expect_refused(model().whole("general.alignment", 0).bytes(), "expected a whole number from 1 to 4294967295");
}

TEST(Gguf, ATensorThatIsNotWhereItMustBeIsRefused) {
  const auto one = [](const std::vector<std::uint64_t>& sizes, std::uint32_t type, std::uint64_t offset = 0,
                      std::size_t data = 128) {
    return model().tensor("output_norm.weight", sizes, type, offset).data(data).bytes();
  };
  const std::string place = "tensor 'output_norm.weight': ";
  expect_refused(one({32}, 16), place + "its type IQ2_XXS is not read; F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K");
  expect_refused(one({256 + 32}, 12), place + "shape [288]: rows of Q4_K are not a multiple of 256 numbers");
  expect_refused(one({32}, 99), place + "its type 99 is not read");
  expect_refused(one({32}, 0, 32), place + "its data begins at 32 of the data, expected 0");
  expect_refused(one({32}, 0, 0, 127), place + "its 128 bytes from byte");
  expect_refused(one({32}, 0, 0, 129), "1 trailing bytes follow");
  expect_refused(one({0}, 0), place + "a size is 0");
  expect_refused(one({1, 1, 1, 1, 1}, 0), place + "has 5 dimensions, at most 4 are read");
  expect_refused(one({std::uint64_t{1} << 40, std::uint64_t{1} << 40}, 0), "has more bytes than 63 bits can count");
  expect_refused(one({16, 2}, 2), place + "shape [2,16]: rows of Q4_0 are not a multiple of 32 numbers");
  expect_refused(
      model().tensor("output_norm.weight", {32}, 0, 0).tensor("output_norm.weight", {32}, 0, 128).data(256).bytes(),
      place + "comes twice");
  expect_refused(
      model().tensor("output_norm.weight", {32}, 0, 0).tensor("output.weight", {32}, 0, 64).data(256).bytes(),
      "tensor 'output.weight': its data begins at 64 of the data, expected 128");
  expect_refused(model().tensor(std::string(65, 'x'), {32}, 0, 0).data(128).bytes(),
                 "a tensor's name has 65 bytes, expected 1 to 64");
}

TEST(Gguf, WhatWouldChangeWhatIsComputedIsRefused) {
  expect_refused(model("gemma").bytes(),
                 "'general.architecture': 'gemma' is not known; llama, qwen2, qwen3, smollm3, gemma2, gemma3, phi3, "
                 "gpt2, bert, modern-bert are");
  expect_refused(Maker().bytes(), "'general.architecture' is missing");
  expect_refused(model("gemma2").bytes(), "'gemma2.attention.sliding_window' is missing");
  expect_refused(model("gemma3").whole("gemma3.attention.sliding_window", 4).bytes(),
                 "'gemma3.rope.freq_base' is missing");
  expect_refused(model("phi3").bytes(), "'phi3.attention.sliding_window' is missing");
  const Maker phi3 = model("phi3").whole("phi3.attention.sliding_window", 0);
  expect_refused(Maker(phi3).whole("phi3.rope.dimension_count", 17).bytes(), "is more than 16, the size of a head");
  expect_refused(Maker(phi3).bytes(), "'phi3.rope.scaling.original_context_length' is missing");
  expect_refused(Maker(phi3)
                     .whole("phi3.rope.scaling.original_context_length", 8)
                     .tensor("rope_factors_long.weight", {8}, 0, 0)
                     .data(32)
                     .bytes(),
                 "one of the tensors 'rope_factors_long.weight' and 'rope_factors_short.weight' is missing");
  expect_refused(model("bert").bytes(), "'bert.attention.causal': is not false");
  expect_refused(model("gpt2").bytes(), "'gpt2.attention.layer_norm_epsilon' is missing");
  expect_refused(model().whole("llama.expert_count", 8).bytes(), "'llama.expert_count': is not known");
  expect_refused(model().word("llama.rope.scaling.type", "yarn").bytes(), "'llama.rope.scaling.type': 'yarn'");
  expect_refused(model().whole("llama.rope.dimension_count", 8).bytes(), "is not 16, the size of a head");
  expect_refused(model().whole("llama.attention.value_length", 8).bytes(), "is not 16, the size of a head's keys");
  expect_refused(model().whole("llama.rope.freq_base", 8).bytes(), "expected a floating-point number");
  expect_refused(model().value("llama.rope.freq_base", 6, bytes_of(INFINITY)).bytes(), "expected a finite number");
  expect_refused(model()
                     .value("llama.attention.head_count_kv", 9, bytes_of(std::uint32_t{4}) + bytes_of(std::uint64_t{0}))
                     .bytes(),
                 "'llama.attention.head_count_kv': expected a whole number from 1");
  expect_refused(model().whole("llama.attention.head_count_kv", 0).bytes(), "expected a whole number from 1");
  expect_refused(model("llama", 64).bytes(), "'llama.attention.head_count': 64 heads can't share 32 numbers");
  expect_refused(model("llama", 2, -1).bytes(),
                 "'llama.attention.layer_norm_rms_epsilon': is -1, expected a number from 0");
  expect_refused(model().whole("split.count", 2).bytes(), "'split.count': a file of several is not read");
  expect_refused(model().word("general.type", "imatrix").bytes(), "'general.type': 'imatrix' is not read; model is");
  expect_refused(model().value("llama.rope.freq_base", 6, bytes_of(0.f)).bytes(),
                 "'llama.rope.freq_base': is 0, expected a number above 0");
  expect_refused(Maker(model("qwen2")).value("qwen2.rope.freq_base", 6, bytes_of(-1.f)).bytes(), "is -1, expected");
  for (const char* name : {"rope_freqs.bias", "blk.0.x.weight", "blk.00.attn_q.weight", "blk..attn_q.weight",
                           "blk.0attn_q.weight", "output_norm.scale", "output_norm", "blk.0.token_embd.weight"}) {
    expect_refused(model().tensor(name, {32}, 0, 0).data(128).bytes(),
                   fmt::format("the tensor '{}' is not known", name));
  }
  expect_refused(model().tensor("blk.0.attn_q.weight", {32, 6}, 0, 0).data(768).bytes(),
                 "tensor 'blk.0.attn_q.weight': shape [6,32] can't be of 2 heads");
  expect_refused(model().tensor("blk.0.attn_q.bias", {32}, 2, 0).data(18).bytes(),
                 "tensor 'blk.0.attn_q.bias': rows of one number are not read in blocks");
}

TEST(Gguf, ATokenizerThatIsNotKnownIsRefused) {
  const auto expect_no_tokenizer = [](const Maker& made, const std::string& text) {
    SCOPED_TRACE(text);
    const Folder folder;
    put(folder / "x.gguf", made.bytes());
    expect_error(
        ErrorCode::bad_file, [&] { gguf_tokenizer("load", folder / "x.gguf"); }, "load: '", text);
  };
  const auto with = [](const char* kind, const std::vector<std::string>& tokens) {
    return Maker().word("tokenizer.ggml.model", kind).words("tokenizer.ggml.tokens", tokens);
  };
  const auto bytes = [&] { return with("gpt2", {"a", "b"}).words("tokenizer.ggml.merges", {}); };
  expect_no_tokenizer(Maker(), "'tokenizer.ggml.model' is missing");
  expect_no_tokenizer(with("rwkv", {"a"}), "the tokenizer 'rwkv' is not known; gpt2, llama, bert and t5 are");
  expect_no_tokenizer(with("t5", {"a"}), "t5 is read from 'tokenizer.huggingface.json' alone, which is missing");
  expect_no_tokenizer(with("gpt2", {}), "'tokenizer.ggml.tokens': 0 tokens");
  expect_no_tokenizer(with("gpt2", {"a", "a"}), "'a' comes twice");
  expect_no_tokenizer(with("gpt2", {"\xff"}), "is not UTF-8");
  expect_no_tokenizer(bytes(), "'tokenizer.ggml.pre' is missing");
  expect_no_tokenizer(bytes().word("tokenizer.ggml.pre", "default"),
                      "the pre-tokeniser 'default' is not known; gpt-2, smollm, llama-bpe, qwen2 and modern-bert are");
  expect_no_tokenizer(bytes().word("tokenizer.ggml.pre", "llama-bpe"), "'tokenizer.ggml.bos_token_id' is missing");
  expect_no_tokenizer(bytes().word("tokenizer.ggml.pre", "gpt-2").whole("tokenizer.ggml.bos_token_id", 2),
                      "'tokenizer.ggml.bos_token_id': 2 is not a token's id");
  const auto array = [](std::uint32_t type, std::uint64_t count, const std::string& of) {
    return bytes_of(type) + bytes_of(count) + of;
  };
  expect_no_tokenizer(bytes().value("tokenizer.ggml.token_type", 9, array(4, 1, bytes_of(1))), "1 types for 2 tokens");
  expect_no_tokenizer(bytes().value("tokenizer.ggml.token_type", 9, array(4, 2, bytes_of(1) + bytes_of(7))),
                      "1: the type 7 is not known");
  expect_no_tokenizer(with("bert", {"▁a", "A"}),
                      "'tokenizer.ggml.normalizer.lowercase' is missing, and the token '##A'");
  expect_no_tokenizer(with("bert", {"▁a"}), "'tokenizer.ggml.unknown_token_id' is missing");
  const Maker bert = with("bert", {"▁a"}).whole("tokenizer.ggml.unknown_token_id", 0);
  expect_no_tokenizer(bert, "'tokenizer.ggml.bos_token_id' is missing");
  expect_no_tokenizer(Maker(bert).whole("tokenizer.ggml.cls_token_id", 0), "'tokenizer.ggml.seperator_token_id' is");
  expect_no_tokenizer(with("bert", {"##a", "▁####a"}), "'####a' comes twice");
  expect_no_tokenizer(with("llama", {"a"}), "'tokenizer.ggml.scores' is missing");
  expect_no_tokenizer(with("llama", {"a"}).value("tokenizer.ggml.scores", 9, array(6, 0, "")), "0 scores for 1 tokens");
  expect_no_tokenizer(with("llama", {"a"}).value("tokenizer.ggml.scores", 9, array(6, 1, bytes_of(NAN))),
                      "0: is not a number");
  expect_no_tokenizer(
      with("llama", {std::string(1025, 'x')}).value("tokenizer.ggml.scores", 9, array(6, 1, bytes_of(0.f))),
      "0: 1025 bytes, at most 1024 are read");
}

models::SentenceModules own_sentences(const Maker& made) {
  const Folder folder;
  put(folder / "x.gguf", made.bytes());
  models::SentenceModules found;
  found.texts.max_tokens = 16;
  models::read_own_sentences(GgufFile("load", folder / "x.gguf"), 2, found);
  return found;
}

TEST(Gguf, WhatIsSaidOfSentencesIsRead) {
  const models::SentenceModules plain = own_sentences(Maker());
  EXPECT_EQ(plain.vector_size, 2);
  EXPECT_EQ(plain.texts.max_tokens, 16);
  const models::SentenceModules found =
      own_sentences(Maker()
                        .words("attend.sentences.pooling", {"max", "lasttoken"})
                        .value("attend.sentences.include_prompt", 7, std::string(1, '\0'))
                        .words("attend.sentences.modules", {"Dense", "LayerNorm", "Normalize"})
                        .value("attend.sentences.modules.0.weight", 9, floats(std::vector<float>(12, 1)))
                        .value("attend.sentences.modules.0.residual", 9, floats(std::vector<float>(12, 1)))
                        .word("attend.sentences.modules.0.activation_function", "ReLU")
                        .value("attend.sentences.modules.0.use_residual", 7, std::string(1, '\1'))
                        .value("attend.sentences.modules.1.weight", 9, floats({1, 2, 3}))
                        .value("attend.sentences.modules.1.bias", 9, floats({4, 5, 6}))
                        .whole("attend.sentences.max_seq_length", 9)
                        .words("attend.sentences.prompts", {"query", "q: ", "text", ""})
                        .word("attend.sentences.default_prompt", "q: "));
  EXPECT_EQ(found.pooling.modes, (std::vector{models::PoolingMode::max, models::PoolingMode::last_token}));
  EXPECT_FALSE(found.pooling.includes_prompt);
  const auto& dense = std::get<models::DenseModule>(found.after.at(0));
  EXPECT_EQ(dense.linear.weight().shape(), (Dims{3, 4}));
  EXPECT_EQ(dense.function, Activation::relu);
  EXPECT_TRUE(dense.residual);
  EXPECT_FALSE(dense.linear.bias());
  EXPECT_EQ(std::get<LayerNorm>(found.after.at(1)).bias()->data<float>()[2], 6);
  EXPECT_TRUE(std::holds_alternative<models::NormalizeModule>(found.after.at(2)));
  EXPECT_EQ(found.vector_size, 3);
  EXPECT_EQ(found.texts.max_tokens, 9);
  EXPECT_EQ(found.texts.prompts.at("query"), "q: ");
  EXPECT_EQ(found.texts.default_prompt, "q: ");
  // No more than the model takes.
  EXPECT_EQ(own_sentences(Maker().whole("attend.sentences.max_seq_length", 99)).texts.max_tokens, 16);
  EXPECT_EQ(own_sentences(Maker().whole("attend.sentences.truncate_dim", 1)).vector_size, 1);
}

TEST(Gguf, WhatIsSaidWrongOfSentencesIsRefused) {
  const auto expect_no_sentences = [](const Maker& made, const std::string& text) {
    SCOPED_TRACE(text);
    expect_error(
        ErrorCode::bad_file, [&] { own_sentences(made); }, "load: '", text);
  };
  const auto modules = [](const std::vector<std::string>& names) {
    return Maker().words("attend.sentences.modules", names);
  };
  const auto dense = [&](std::size_t numbers, const std::string& function) {
    return modules({"Dense"})
        .value("attend.sentences.modules.0.weight", 9, floats(std::vector<float>(numbers)))
        .value("attend.sentences.modules.0.use_residual", 7, std::string(1, '\0'))
        .word("attend.sentences.modules.0.activation_function", function);
  };
  expect_no_sentences(Maker().whole("attend.sentences.weather", 1), "'attend.sentences.weather': is not known");
  expect_no_sentences(Maker().words("attend.sentences.pooling", {}), "0 modes, expected 1 to 16");
  expect_no_sentences(Maker().words("attend.sentences.pooling", {"min"}), "'min' is not known");
  expect_no_sentences(Maker().whole("attend.sentences.truncate_dim", 0), "expected a whole number from 1");
  expect_no_sentences(Maker().words("attend.sentences.prompts", {"a"}), "expected names and texts in turn");
  expect_no_sentences(modules({"Dropout"}), "'Dropout' is not known; Dense, LayerNorm and Normalize are");
  expect_no_sentences(modules({"Dense"}), "'attend.sentences.modules.0.weight' is missing");
  expect_no_sentences(dense(7, "Tanh"), "7 numbers, expected the shape [3,2]");
  expect_no_sentences(dense(0, "Tanh"), "0 numbers, expected the shape [1,2]");
  expect_no_sentences(dense(4, "GLU"), "'GLU' is not known");
  expect_no_sentences(modules({"LayerNorm"}).value("attend.sentences.modules.0.weight", 9, floats({1})),
                      "1 numbers, expected the shape [2]");
  // Of another group than there is, and a folder's file of which nothing is known.
  expect_refused(model().whole("attend.weather", 1).bytes(), "'attend.weather': is not known");
  expect_refused(model().word("attend.folder.vocab.json", "{}").bytes(), "'attend.folder.vocab.json': is not known");
  expect_refused(model().word("attend.folder.config.json", "{").bytes(), "'attend.folder.config.json': is not JSON");
}

// As gguf-py and llama.cpp's convert_lora_to_gguf.py write one; and without tensors that tell.
TEST(Gguf, AnAdapterIsNoModel) {
  const Maker plain = model().word("general.type", "adapter").word("adapter.type", "lora");
  expect_refused(Maker(plain).tensor("blk.0.attn_q.weight.lora_a", {32, 8}, 0, 0).data(1024).bytes(),
                 "'general.type': 'adapter' is not read; model is");
  expect_refused(plain.bytes(), "'general.type': 'adapter' is not read; model is");
  expect_refused(model().word("adapter.type", "lora").bytes(), "'adapter.type': an adapter is not read; a model is");
}

void read_both(const std::filesystem::path& path) {
  read_gguf("load", path);
  gguf_tokenizer("load", path);
}

TEST(Gguf, ABrokenFileIsRefusedAndDoesNotCrash) {
  const std::string bytes = model()
                                .word("tokenizer.ggml.model", "gpt2")
                                .word("tokenizer.ggml.pre", "smollm")
                                .words("tokenizer.ggml.tokens", {"a", "b", "ab"})
                                .words("tokenizer.ggml.merges", {"a b"})
                                .tensor("output_norm.weight", {32}, 0, 0)
                                .tensor("blk.0.attn_q.weight", {32, 4}, 2, 128)
                                .data(200)
                                .bytes();
  const Folder folder;
  put(folder / "x.gguf", bytes);
  EXPECT_NO_THROW(read_both(folder / "x.gguf"));
  test::expect_cut_short(bytes, read_both);
  test::expect_no_crash(bytes, read_both);
}

}  // namespace
}  // namespace attend
