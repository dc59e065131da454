#include "tokenizer/text.h"

#include <algorithm>

#include "core/utf8.h"

namespace attend::inline v1::tokenizer {

namespace {

std::uint32_t bytes_of(char32_t point) {
  return point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
}

}  // namespace

Characters::Characters(std::string_view text, std::uint32_t begin, const Growth& growth)
    : points_(decode_utf8(text, {"Tokenizer::encode", "text"})), begin_(begin), growth_(&growth) {
  spans_.reserve(points_.size());
  for (const char32_t point : points_) {
    spans_.push_back({begin, begin + bytes_of(point)});
    begin = spans_.back().end;
  }
}

void Characters::change(const std::vector<Changed>& changes, std::size_t removed) {
  growth_->check(changes.size());
  std::u32string points;
  std::vector<Span> spans;
  points.reserve(changes.size()), spans.reserve(changes.size());
  std::size_t at = removed;
  for (const Changed& each : changes) {
    const bool is_new = each.change > 0;
    if (is_new && at == 0) {
      spans.push_back({begin_, begin_});
    } else {
      spans.push_back(spans_[std::min(is_new ? at - 1 : at, spans_.size() - 1)]);
    }
    points.push_back(each.point);
    if (!is_new) at = std::min(at + 1 + static_cast<std::size_t>(-each.change), spans_.size());
  }
  points_ = std::move(points), spans_ = std::move(spans);
}

void Characters::prepend(std::u32string_view text) {
  if (points_.empty()) return;
  growth_->check(points_.size() + text.size());
  points_.insert(0, text);
  spans_.insert(spans_.begin(), text.size(), Span(spans_.front()));
}

void Characters::replace(const std::vector<Replacement>& places, std::u32string_view with) {
  if (places.empty()) return;
  std::uint64_t size = points_.size() + places.size() * with.size();
  for (const Replacement& place : places) size -= place.end - place.begin;
  growth_->check(size);
  std::u32string points;
  std::vector<Span> spans;
  std::size_t at = 0;
  const auto keep_to = [&](std::size_t end) {
    points.append(points_, at, end - at);
    spans.insert(spans.end(), spans_.begin() + static_cast<std::ptrdiff_t>(at),
                 spans_.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (const Replacement& place : places) {
    keep_to(place.begin);
    points += with;
    spans.insert(spans.end(), with.size(), place.end == 0 ? Span{begin_, begin_} : spans_[place.end - 1]);
    at = place.end;
  }
  keep_to(points_.size());
  points_ = std::move(points), spans_ = std::move(spans);
}

AlignedText::AlignedText(const Characters& characters)
    : text_(encode_utf8(characters.points())), growth_(&characters.growth()) {
  spans_.reserve(text_.size());
  for (std::size_t n = 0; n < characters.points().size(); ++n) {
    spans_.insert(spans_.end(), bytes_of(characters.points()[n]), characters.spans()[n]);
  }
}

Span AlignedText::span(std::size_t begin, std::size_t end) const {
  if (!as_it_stands()) {
    return {spans_[begin].begin, spans_[std::max(end, begin + 1) - 1].end};
  }
  while (begin > 0 && !begins_character(text_[begin])) --begin;
  while (end < text_.size() && !begins_character(text_[end])) ++end;
  return {begin_ + static_cast<std::uint32_t>(begin), begin_ + static_cast<std::uint32_t>(end)};
}

void AlignedText::append(const AlignedText& from, std::size_t begin, std::size_t end) {
  growth_->check(text_.size() + end - begin);
  text_.append(from.text_, begin, end - begin);
  if (!from.as_it_stands()) {
    spans_.insert(spans_.end(), from.spans_.begin() + static_cast<std::ptrdiff_t>(begin),
                  from.spans_.begin() + static_cast<std::ptrdiff_t>(end));
    return;
  }
  while (begin < end) {
    std::size_t next = begin + 1;
    while (next < end && !begins_character(from.text_[next])) ++next;
    spans_.insert(spans_.end(), next - begin, from.span(begin, next));
    begin = next;
  }
}

void AlignedText::append(std::string_view text, Span span) {
  growth_->check(text_.size() + text.size());
  text_ += text;
  spans_.insert(spans_.end(), text.size(), span);
}

}  // namespace attend::inline v1::tokenizer
