// The one way in which the library reports a failure.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "attend/api.h"

namespace attend::inline v0 {

// What kind of thing went wrong; the message says which argument, what was expected and what came.
enum class ATTEND_API ErrorCode {
  bad_shape,      // a shape or size does not fit the others
  bad_dtype,      // an element type that the operation does not take
  bad_value,      // a value outside its range, text that is not UTF-8, an option that contradicts another
  bad_file,       // a file that can't be read or written, or whose content is not what it claims to be
  out_of_memory,  // an allocation failed; the arguments are unchanged
  interrupted,    // an InterruptCheck said so (attend/threads.h)
  lost_rank,      // another rank of a ring is gone, or has given up (attend/ring.h)
};

// As it is written there: "bad_shape", "bad_dtype", ...
ATTEND_API std::string_view name_of(ErrorCode code);

// Every failure of the library is thrown as this type, but for std::bad_alloc where there is no memory for a short
// string or list (a tensor's is out_of_memory). The library never prints, exits or aborts.
class ATTEND_API Error : public std::runtime_error {
 public:
  // what() is "function: detail", or the detail alone where the function is empty.
  Error(ErrorCode code, std::string_view function, std::string_view detail)
      : std::runtime_error(std::string(function) + (function.empty() ? "" : ": ") + std::string(detail)),
        code_(code),
        function_size_(function.size()) {}

  ErrorCode code() const noexcept { return code_; }
  // The function that was called: "attention", "KvCache::append"; empty where the fault is in no argument of one.
  std::string_view function() const noexcept { return std::string_view(what()).substr(0, function_size_); }
  // Which argument, what was expected and what came.
  std::string_view detail() const noexcept {
    return std::string_view(what()).substr(function_size_ == 0 ? 0 : function_size_ + 2);
  }

 private:
  ErrorCode code_;
  std::size_t function_size_;
};

}  // namespace attend::inline v0
