#include "tokenizer/growth.h"

#include "core/message.h"

namespace attend::inline v1::tokenizer {

void Growth::fail_too_much() const {
  fail(ErrorCode::bad_value, function_, "the tokenizer makes more of what it is given than {} bytes, the most it may",
       most_);
}

}  // namespace attend::inline v1::tokenizer
