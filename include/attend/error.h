// How the library reports failures.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "attend/api.h"

namespace attend::inline v1 {

// The kind of failure. The message names the argument, what was expected and what came.
enum class ATTEND_API ErrorCode {
  bad_shape,      // a shape or size that does not fit the others
  bad_dtype,      // an element type that the operation does not take
  bad_value,      // a value out of range, text that is not UTF-8, or contradicting options
  bad_file,       // a file that can't be read or written, or has unexpected content
  out_of_memory,  // an allocation failed; arguments are unchanged
  interrupted,    // by an InterruptCheck (attend/threads.h)
  lost_rank,      // another rank of a ring is gone or has given up (attend/ring.h)
};

// "bad_shape", "bad_dtype", ...
ATTEND_API std::string_view name_of(ErrorCode code);

// Every failure is thrown as this type, except std::bad_alloc for a short string or list (for a tensor it is
// out_of_memory). The library never prints, exits or aborts.
class ATTEND_API Error : public std::runtime_error {
 public:
  // what() is "function: detail", or only the detail if function is empty.
  Error(ErrorCode code, std::string_view function, std::string_view detail)
      : std::runtime_error(std::string(function) + (function.empty() ? "" : ": ") + std::string(detail)),
        code_(code),
        function_size_(function.size()) {}

  ErrorCode code() const noexcept { return code_; }
  // The called function: "attention", "KvCache::append"; empty if no argument is at fault.
  std::string_view function() const noexcept { return std::string_view(what()).substr(0, function_size_); }
  // The argument, what was expected and what came.
  std::string_view detail() const noexcept {
    return std::string_view(what()).substr(function_size_ == 0 ? 0 : function_size_ + 2);
  }

 private:
  ErrorCode code_;
  std::size_t function_size_;
};

}  // namespace attend::inline v1
