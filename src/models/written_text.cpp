#include "models/written_text.h"

#include <algorithm>

namespace attend::inline v1::models {

namespace {

// Bytes that make no character yet, as Tokenizer::decode() gives them.
constexpr std::string_view unfinished = "\uFFFD";

}  // namespace

WrittenText::WrittenText(const Tokenizer& tokenizer, std::span<const std::int64_t> before,
                         const std::vector<std::string>& stops)
    : tokenizer_(&tokenizer), stops_(&stops) {
  for (const std::string& stop : stops) longest_ = std::max(longest_, stop.size());
  ids_.assign(before.begin(), before.end());
  const std::string text = tokenizer.decode(ids_);
  settled_ = ids_.size(), settled_bytes_ = text.size();
  tail_ = text.substr(text.size() - std::min(text.size(), longest_));
}

std::string WrittenText::add(std::int64_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_->decode(ids_);
  const std::string_view fresh = std::string_view(text).substr(std::min(settled_bytes_, text.size()));
  if (find_stop(fresh)) return shown(true);
  if (fresh.empty() || fresh.ends_with(unfinished)) return "";  // a special token has no text
  pending_ += fresh, tail_ += fresh;
  tail_.erase(0, tail_.size() - std::min(tail_.size(), longest_));
  settle();
  return shown(false);
}

std::string WrittenText::end() {
  if (!stopped_ && settled_ < ids_.size()) {
    const std::string text = tokenizer_->decode(ids_);
    pending_ += text.substr(std::min(settled_bytes_, text.size()));
  }
  return shown(true);
}

// A token's text depends on what stands before it, as a space or the bytes of a character do. What was settled last is
// enough of that, unless it begins within a character, as after a prompt that ends there.
void WrittenText::settle() {
  std::string text = tokenizer_->decode(std::span<const std::int64_t>(ids_).subspan(settled_));
  if (text.starts_with(unfinished))
    text = tokenizer_->decode(ids_);
  else
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(settled_));
  settled_ = ids_.size(), settled_bytes_ = text.size();
}

// fresh: what follows tail_. A stop string that ends before it would have been found with an earlier token.
bool WrittenText::find_stop(std::string_view fresh) {
  if (stops_->empty()) return false;
  const std::string text = tail_ + std::string(fresh);
  std::size_t first = std::string::npos;
  for (const std::string& stop : *stops_) {
    const std::size_t from = tail_.size() - std::min(tail_.size(), stop.size() - 1);
    first = std::min(first, text.find(stop, from));
  }
  if (first == std::string::npos) return false;
  stopped_ = true, cut_ = text.size() - first;
  // pending_ ends where tail_ does.
  if (first >= tail_.size())
    pending_ += fresh.substr(0, first - tail_.size());
  else
    pending_.resize(pending_.size() - std::min(pending_.size(), tail_.size() - first));
  return true;
}

// What is not kept back of pending_, which becomes that.
std::string WrittenText::shown(bool all) {
  std::size_t kept = 0;
  for (const std::string& stop : *stops_) {
    std::size_t begins = all ? 0 : std::min(stop.size() - 1, pending_.size());
    while (begins > 0 && !pending_.ends_with(std::string_view(stop).substr(0, begins))) --begins;
    kept = std::max(kept, begins);
  }
  std::string out = pending_.substr(0, pending_.size() - kept);
  pending_.erase(0, out.size());
  return out;
}

}  // namespace attend::inline v1::models
