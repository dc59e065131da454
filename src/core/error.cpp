#include "attend/error.h"

namespace attend::inline v1 {

// Without a default: the compiler says it where one is missing.
std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::bad_shape:
      return "bad_shape";
    case ErrorCode::bad_dtype:
      return "bad_dtype";
    case ErrorCode::bad_value:
      return "bad_value";
    case ErrorCode::bad_file:
      return "bad_file";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::interrupted:
      return "interrupted";
    case ErrorCode::lost_rank:
      return "lost_rank";
  }
  return "unknown";
}

}  // namespace attend::inline v1
