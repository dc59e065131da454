// The tokenizer beside a model, which is read when it is first asked for.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "attend/tokenizer.h"

namespace attend::inline v1::models {

class OwnTokenizer {
 public:
  // lower_case: texts are made lower-case before the tokenizer's own normalisers, as sentence-transformers does it.
  OwnTokenizer(const std::filesystem::path& path, bool lower_case) : path_(path), lower_case_(lower_case) {
    // Where the working folder is gone, a path in it stays as it is.
    std::error_code error;
    if (auto whole = std::filesystem::absolute(path, error); !error) path_ = std::move(whole);
  }
  // Throws bad_file.
  const Tokenizer& get() const;

 private:
  std::filesystem::path path_;
  bool lower_case_;
  mutable std::mutex mutex_;
  mutable std::optional<Tokenizer> read_;
};

}  // namespace attend::inline v1::models
