// What the keys of an architecture say, as config.json has it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/gguf/file.h"
#include "models/sentences/modules.h"

namespace attend::inline v1::models {

// The keys of one architecture, "llama.block_count", or attend's own. They throw bad_file.
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(fmt::format("{}.", architecture)) {}

  const GgufFile& file() const { return file_; }
  bool has(std::string_view name) const { return file_.has(key(name)); }
  std::int64_t whole(std::string_view name, std::int64_t low) const;
  std::int64_t size(std::string_view name) const { return whole(name, 1); }
  std::int64_t size_or(std::string_view name, std::int64_t other) const { return has(name) ? size(name) : other; }
  double number_above_0(std::string_view name) const;
  double number_from_0(std::string_view name) const;
  std::string text(std::string_view name) const { return file_.text(key(name)); }
  bool truth(std::string_view name) const { return file_.truth(key(name)); }
  std::vector<std::string> texts(std::string_view name) const { return file_.texts(key(name)); }
  std::vector<std::int64_t> ids(std::string_view name) const;
  std::vector<float> numbers(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view name, std::string_view what) const { file_.refuse(key(name), what); }
  // A key that nobody has asked for is not known, and could change what is computed.
  void check_all_read() const;

 private:
  std::string key(std::string_view name) const;

  const GgufFile& file_;
  std::string prefix_;
  mutable std::set<std::string, std::less<>> read_;
};

// Tensors that are no weights: configure_*() read them.
bool is_in_config(std::string_view tensor);

void configure_llama(const GgufKeys& keys, nlohmann::json& config);
void configure_qwen(const GgufKeys& keys, nlohmann::json& config);
void configure_smollm3(const GgufKeys& keys, nlohmann::json& config);
void configure_gemma2(const GgufKeys& keys, nlohmann::json& config);
void configure_gemma3(const GgufKeys& keys, nlohmann::json& config);
void configure_phi3(const GgufKeys& keys, nlohmann::json& config);
void configure_gpt2(const GgufKeys& keys, nlohmann::json& config);
void configure_bert(const GgufKeys& keys, nlohmann::json& config);
void configure_modernbert(const GgufKeys& keys, nlohmann::json& config);

// The number that GGUF has for a pooling, if it has one.
std::optional<std::int64_t> gguf_pooling_type(const std::vector<PoolingMode>& modes);
// How sentences become vectors by the keys that GGUF has: by the file's pooling, and all else as it comes.
SentenceModules gguf_sentences(const Member& config, std::int64_t E, std::int64_t longest);

}  // namespace attend::inline v1::models
