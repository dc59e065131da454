#include "models/weights.h"

#include "io/mapped_file.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using models::Weights;
using test::counting;
using test::expect_error;
using test::expect_same;
using test::Folder;
using test::get;
using test::put;

void expect_refused(const Folder& folder, const std::string& text) {
  expect_error(
      ErrorCode::bad_file, [&] { Weights::open("load", folder.path()); }, "load: '" + folder.path().string(), text);
}

// Two shards of one tensor each, and their index.
void put_shards(const Folder& folder) {
  write_safetensors(folder / "model-00001-of-00002.safetensors", {{"a", counting({2, 3})}});
  write_safetensors(folder / "model-00002-of-00002.safetensors", {{"b", counting({4}, DType::bf16)}});
  put(folder / "model.safetensors.index.json",
      R"({"metadata": {"total_size": 32}, "weight_map": {"a": "model-00001-of-00002.safetensors",
          "b": "model-00002-of-00002.safetensors"}})");
}

TEST(MappedFile, HasTheBytesAlsoOfAFileThatCannotBeMapped) {
  const Folder folder;
  const std::string bytes(5000, 'x');
  put(folder / "file", bytes), put(folder / "empty", "");
  const InputFile file("open", folder / "file"), empty("open", folder / "empty");
  const MappedFile mapped(file), nothing(empty);
  EXPECT_TRUE(mapped.is_mapped());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped.data()), mapped.size()), bytes);
  EXPECT_FALSE(nothing.is_mapped());
  EXPECT_EQ(nothing.size(), 0U);

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  close(ends[1]);
  const InputFile pipe("open", "/proc/self/fd/" + std::to_string(ends[0]), Pipes::read);
  close(ends[0]);
  const MappedFile read(pipe);
  EXPECT_FALSE(read.is_mapped());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.data()) % 64, 0U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.data()), read.size()), bytes);
}

TEST(Weights, OneFileIsMapped) {
  const Folder folder;
  const Tensor a = counting({2, 3}), b = counting({4}, DType::bf16), c = counting({3}, DType::boolean);
  write_safetensors(folder / "model.safetensors", {{"a", a}, {"b", b}, {"c", c}, {"none", counting({0, 2})}});
  std::optional<Weights> weights = Weights::open("load", folder.path());
  const Weights copy = *weights;
  weights.reset();
  ASSERT_EQ(copy.all().size(), 4U);
  expect_same(copy.find("a")->view, a);
  expect_same(copy.find("b")->view, b);
  expect_same(copy.find("c")->view, c);
  EXPECT_EQ(copy.find("none")->view.shape(), (Dims{0, 2}));
  EXPECT_EQ(copy.find("d"), nullptr);
  // Side by side, as in the file.
  EXPECT_EQ(copy.find("b")->view.data<BF16>(), static_cast<const void*>(copy.find("a")->view.data<float>() + 6));
}

// The header's length decides where the data begins.
TEST(Weights, DataAtAnAddressThatIsNoMultipleOfItsElementsIsCopied) {
  const Folder folder;
  const Tensor a = counting({2, 3});
  const std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  for (std::size_t more = 0; more < 8; ++more) {
    const std::string text = header + std::string(more, ' ');
    put(folder / "model.safetensors",
        test::bytes_of(std::uint64_t{text.size()}) + text + std::string(static_cast<const char*>(a.raw()), 24));
    const Weights weights = Weights::open("load", folder.path());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weights.find("a")->view.raw()) % 4, 0U);
    expect_same(weights.find("a")->view, a);
  }
}

TEST(Weights, ABoolThatIsNoneIsRefused) {
  const Folder folder;
  write_safetensors(folder / "model.safetensors", {{"c", counting({3}, DType::boolean)}});
  std::string bytes = get(folder / "model.safetensors");
  bytes.back() = 2;
  put(folder / "model.safetensors", bytes);
  expect_refused(folder, "tensor 'c'");
}

TEST(Weights, ShardsAreFoundByTheIndex) {
  const Folder folder;
  put_shards(folder);
  const Weights weights = Weights::open("load", folder.path());
  ASSERT_EQ(weights.all().size(), 2U);
  expect_same(weights.find("a")->view, counting({2, 3}));
  expect_same(weights.find("b")->view, counting({4}, DType::bf16));
  EXPECT_EQ(weights.place().function, "load");
  EXPECT_EQ(weights.place().part, fmt::format("'{}'", folder.path().string()));

  write_safetensors(folder / "model.safetensors", {{"c", counting({1})}});  // is read where both are, as there
  EXPECT_NE(Weights::open("load", folder.path()).find("c"), nullptr);
}

TEST(Weights, WhatAnIndexNamesMustBeThere) {
  const Folder folder;
  expect_refused(folder, "holds neither model.safetensors nor model.safetensors.index.json");
  expect_error(
      ErrorCode::bad_file, [&] { Weights::open("load", folder / "gone"); }, "is not a folder");
  put_shards(folder);
  const std::filesystem::path second = folder / "model-00002-of-00002.safetensors";
  write_safetensors(second, {{"c", counting({1})}});
  expect_refused(folder, "1 tensors are missing, which model.safetensors.index.json says are in this file: 'b'");
  write_safetensors(second, {{"a", counting({1})}, {"b", counting({1})}});
  expect_refused(folder, "1 tensors are here, which model.safetensors.index.json does not list for this file: 'a'");
  put(second, get(second).substr(0, 100));
  expect_refused(folder, "model-00002-of-00002.safetensors");
  std::filesystem::remove(second);
  expect_refused(
      folder,
      "1 of the 2 files that model.safetensors.index.json names are missing, as if a download had stopped halfway: "
      "'model-00002-of-00002.safetensors'");
}

TEST(Weights, ABrokenIndexIsRefused) {
  const Folder folder;
  const std::pair<const char*, const char*> broken[] = {
      {"{", "is not JSON"},
      {"[]", "expected an object"},
      {"{}", "weight_map is missing"},
      {R"({"weight_map": {}, "more": 1})", "'more' is not known"},
      {R"({"weight_map": []})", "weight_map: expected an object with the file of each tensor"},
      {R"({"weight_map": {}})", "weight_map: expected an object with the file of each tensor"},
      {R"({"weight_map": {"a": 1}})", "weight_map: 'a': expected text"},
      {R"({"weight_map": {"a": "../x"}})", "expected the name of a file in the same folder, not '../x'"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "not '/etc/passwd'"},
      {R"({"weight_map": {"a": ".."}})", "not '..'"},
      {R"({"weight_map": {"a": ""}})", "not ''"},
  };
  for (const auto& [index, text] : broken) {
    SCOPED_TRACE(index);
    put(folder / "model.safetensors.index.json", index);
    expect_refused(folder, text);
  }
}

}  // namespace
}  // namespace attend
