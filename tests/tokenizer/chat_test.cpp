#include <array>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "tests/expect.h"
#include "tests/io/files.h"

namespace attend {
namespace {

TEST(Sha256, AsFips180Has) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

Tokenizer with_template(const test::Folder& folder, const std::string& chat_template) {
  test::put(folder / "tokenizer.json",
            R"({"version": "1.0", "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0}}})");
  test::put(folder / "tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  test::put(folder / "chat_template.jinja", chat_template);
  return Tokenizer::load(folder.path());
}

// tests/pytorch/test_chat.py has what they make of messages.
TEST(Chat, KnowsTheTemplatesOfTheGoldenFolder) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(test::data("golden/chat"))) {
    SCOPED_TRACE(file.path());
    const test::Folder folder;
    const std::array said = {Message{file.path().stem() == "qwen3_reranker" ? "query" : "user", "Hello"}};
    EXPECT_NE(with_template(folder, test::get(file.path())).chat(said).find("Hello"), std::string::npos);
    ++count;
  }
  EXPECT_EQ(count, 16);
}

TEST(Chat, PutsMessagesAsTheTemplateHasThem) {
  const test::Folder folder;
  const Tokenizer tokenizer = with_template(folder, test::get(test::data("golden/chat/llama2.jinja")));
  const std::array said = {Message{"system", "Be brief."}, Message{"user", " Hi "}, Message{"assistant", "Yes?"}};
  EXPECT_EQ(tokenizer.chat(said), "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Yes? </s>");
}

TEST(Chat, WhatIsNotKnownIsRefused) {
  const test::Folder folder;
  const Tokenizer tokenizer = with_template(folder, "{{ messages }}");
  const auto refuse = [&](ErrorCode code, const Message& message, const char* said) {
    const std::array messages = {message};
    test::expect_error(
        code, [&] { (void)tokenizer.chat(messages); }, "Tokenizer::chat", said);
  };
  refuse(ErrorCode::bad_file, {"user", "Hello"}, "the chat template is not known here");
  refuse(ErrorCode::bad_value, {"tool", "Hello"}, "message 1 has the role 'tool'");
  refuse(ErrorCode::bad_value, {"user", "\xff"}, "message 1");
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)tokenizer.chat({}); }, "expected messages");
}

}  // namespace
}  // namespace attend
