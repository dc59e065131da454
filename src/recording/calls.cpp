#include "recording/calls.h"

#include <algorithm>
#include <cstring>

#include "attention/positions.h"
#include "core/axes.h"

namespace attend::inline v1 {

namespace {

// Of [.., Tq, Tk] every call has its own.
bool is_of_pairs(const TensorOption& option) {
  return option.shape == TensorOption::Shape::pairs;
}

// One element along each axis of stride 0, of those that may be repeated.
View without_repeats(const TensorOption& option, View x) {
  if (!is_of_pairs(option)) return x;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.size(axis) > 1 && x.strides()[axis] == 0) x = x.slice(axis, 0, 1);
  }
  return x;
}

bool same_elements(const View& a, const View& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.count() == 0) return true;
  const Tensor x = a.clone(), y = b.clone();
  return std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.count() * size_of(x.dtype()))) == 0;
}

// Whether `next` says of the keys of `last` what `last` says, for all queries alike.
bool same_keys(const Tensor& last, const Tensor& next, std::int64_t keys_before) {
  const View a = with_four_axes(last), b = with_four_axes(next);
  if (a.size(2) != 1 || b.size(2) != 1 || a.size(3) > b.size(3) || keys_before != 0) return false;
  return same_elements(a, b.slice(3, 0, a.size(3)));
}

bool same_numbers(const RecordedCall& a, const RecordedCall& b) {
  const auto level = [](const RecordedCall& x) {
    return x.offset ? std::optional(x.keys.begin + *x.offset - x.queries.begin) : std::nullopt;
  };
  return a.scale == b.scale && a.window.left == b.window.left && a.window.right == b.window.right &&
         a.numbers == b.numbers && a.tensors == b.tensors && a.keys.begin == b.keys.begin && level(a) == level(b);
}

// Later keys must be hidden from the queries of `last`, or there be none.
bool hides_later_keys(const RecordedCall& last, const RecordedCall& next) {
  if (last.keys.end == next.keys.end) return true;
  return last.window.right == 0 && last.offset &&
         last.queries.end - last.queries.begin + *last.offset <= last.keys.end - last.keys.begin;
}

// The part of a tensor that one item and head have: axes 0 and 1 of four, where they are not repeated.
View part_of(const View& x, std::int64_t item, std::int64_t head) {
  View four = with_four_axes(x);
  if (four.size(0) > 1) four = four.slice(0, item, item + 1);
  if (four.size(1) > 1) four = four.slice(1, head, head + 1);
  return four;
}

}  // namespace

KeptCall keep_call(const AttentionOptions& options, const Range& queries, const Range& keys, double scale, bool keep) {
  KeptCall kept{{queries, keys, scale, visible_window(options)}, {}};
  if (options.offset) {
    kept.call.offset = options.offset->resolve(queries.end - queries.begin, keys.end - keys.begin);
  }
  for (const NumberOption& option : number_options())
    if (options.*option.value != 0) kept.call.numbers.emplace(option.name, options.*option.value);
  for (const TensorOption& option : tensor_options()) {
    const std::optional<View>& value = options.*option.value;
    if (!value) continue;
    kept.call.tensors.emplace_back(option.name);
    if (keep) kept.tensors.emplace(option.name, without_repeats(option, *value).clone());
  }
  return kept;
}

std::int64_t kept_bytes(const AttentionOptions& options) {
  std::int64_t bytes = 0;
  for (const TensorOption& option : tensor_options()) {
    const std::optional<View>& value = options.*option.value;
    if (value) bytes += without_repeats(option, *value).count() * size_of(value->dtype());
  }
  return bytes;
}

std::int64_t bytes_of(const KeptCall& call) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : call.tensors) bytes += tensor.count() * size_of(tensor.dtype());
  return bytes;
}

bool extend(KeptCall& last, const KeptCall& next) {
  if (!same_numbers(last.call, next.call) || !hides_later_keys(last.call, next.call)) return false;
  if (last.tensors.size() != next.tensors.size()) return false;
  for (const TensorOption& option : tensor_options()) {
    const auto found = next.tensors.find(option.name);
    if (found == next.tensors.end()) continue;
    const Tensor &before = last.tensors.find(option.name)->second, &now = found->second;
    if (!(is_of_pairs(option) ? same_keys(before, now, next.call.keys.begin) : same_elements(before, now)))
      return false;
  }
  for (const auto& [name, tensor] : next.tensors) last.tensors.find(name)->second = tensor.clone();
  last.call.queries.end = next.call.queries.end, last.call.keys.end = next.call.keys.end;
  return true;
}

AttentionOptions options_of(const RecordedCall& call, const TensorMap& tensors, std::int64_t item, std::int64_t head) {
  AttentionOptions options{.scale = call.scale, .window = call.window};
  if (call.offset) options.offset = Offset(*call.offset);
  for (const NumberOption& option : number_options()) {
    const auto found = call.numbers.find(std::string(option.name));
    if (found != call.numbers.end()) options.*option.value = found->second;
  }
  for (const TensorOption& option : tensor_options()) {
    const auto found = tensors.find(option.name);
    if (found == tensors.end()) continue;
    const View all = found->second;
    const bool of_heads = option.shape == TensorOption::Shape::heads || option.shape == TensorOption::Shape::distances;
    if (of_heads) {
      options.*option.value = all.slice(0, head, head + 1);
    } else if (option.shape == TensorOption::Shape::items) {
      options.*option.value = all.slice(0, item, item + 1);
    } else {
      options.*option.value = part_of(all, item, head);
    }
  }
  return options;
}

AttentionOptions options_of_rows(const AttentionOptions& options, const RecordedCall& call, const Range& rows) {
  AttentionOptions some = options;
  some.offset = Offset(call.offset.value_or(0) + rows.begin);
  for (const TensorOption& option : tensor_options()) {
    std::optional<View>& value = some.*option.value;
    if (!value || !is_of_pairs(option)) continue;
    if (const View four = with_four_axes(*value); four.size(2) > 1) value = four.slice(2, rows.begin, rows.end);
  }
  return some;
}

}  // namespace attend::inline v1
