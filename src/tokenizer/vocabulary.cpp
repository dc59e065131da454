#include "tokenizer/vocabulary.h"

#include <atomic>

#include "io/file.h"

namespace attend::inline v1::tokenizer {

void TokenMap::add(std::string token, TokenId id) {
  tokens_.insert_or_assign(id, token);
  ids_.insert_or_assign(std::move(token), id);
}

std::optional<TokenId> TokenMap::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* TokenMap::token(TokenId id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::array<std::optional<TokenId>, 256> byte_tokens(const TokenMap& vocabulary) {
  std::array<std::optional<TokenId>, 256> tokens;
  for (std::size_t byte = 0; byte < tokens.size(); ++byte)
    tokens[byte] = vocabulary.id(fmt::format("<0x{:02X}>", byte));
  return tokens;
}

void fail_unknown(std::string_view text) {
  fail(ErrorCode::bad_value, "Tokenizer::encode", "{} is not a token, and the tokenizer has none for unknown text",
       quote(text));
}

WordCache& WordCache::of_this_thread() {
  thread_local WordCache cache;
  return cache;
}

WordCache::Word& WordCache::place(std::uint64_t model, std::string_view text) {
  const std::size_t hash = HashText()(text) ^ static_cast<std::size_t>(model * 0x9e3779b97f4a7c15);
  return words_[hash % words_.size()];
}

std::uint64_t WordCache::new_model() {
  static std::atomic<std::uint64_t> last = 0;
  return last += 2;
}

}  // namespace attend::inline v1::tokenizer
