// How rows of a layer were computed, with the options that are tensors.
#pragma once

#include <optional>

#include "attend/recording.h"

namespace attend::inline v1 {

// A call with its tensors, by the names of tensor_options().
struct KeptCall {
  RecordedCall call;
  TensorMap tensors;
};

// The options' numbers and, where `keep`, copies of their tensors: an axis along which one was repeated has size 1.
KeptCall keep_call(const AttentionOptions& options, const Range& queries, const Range& keys, double scale, bool keep);
// What the copies will take, and what they do.
std::int64_t kept_bytes(const AttentionOptions& options);
std::int64_t bytes_of(const KeptCall& call);

// Whether `next`, whose queries follow those of `last`, is the same with more rows and keys; `last` is both then.
bool extend(KeptCall& last, const KeptCall& next);

// The options of one item and head (of the recorded ones) of a call.
AttentionOptions options_of(const RecordedCall& call, const TensorMap& tensors, std::int64_t item, std::int64_t head);
// The same of some of its queries, counted from its first: where they stand among its keys is said.
AttentionOptions options_of_rows(const AttentionOptions& options, const RecordedCall& call, const Range& rows);

}  // namespace attend::inline v1
