#include "call.h"

#include <atomic>
#include <cctype>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "attend/tensor.h"
#include "dtypes.h"

namespace attend::python {

namespace {

std::atomic<int> asking = 0;
std::atomic<std::thread::id> ending;  // the thread that ends Python; none yet

void end() {
  ending = std::this_thread::get_id();
  const WithoutGil without;
  // Not for ever: a forked process has the count of threads that did not come along.
  for (int i = 0; i < 100 && asking > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void replace_words(std::string& text, std::string_view word, std::string_view by) {
  const auto in_word = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if (in_word(at - 1) || in_word(at + word.size())) continue;
    text.replace(at, word.size(), by);
  }
}

}  // namespace

MayAskForGil::MayAskForGil(Gil now) {
  ++asking;
  const std::thread::id by = ending;
  if (by == std::thread::id() || by == std::this_thread::get_id()) return;
  --asking;
  if (now == Gil::held) PyEval_SaveThread();
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

MayAskForGil::~MayAskForGil() {
  --asking;
}

void keep_threads_when_python_ends() {
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(end));
}

nanobind::list constructed_with(const char* name, const std::string& signature, const nanobind::args& args,
                                const nanobind::kwargs& keywords) {
  return nanobind::list(
      nanobind::module_::import_("attend._calls").attr("constructed")(name, signature.c_str(), args, keywords));
}

std::string translate_names(std::string text) {
  // FlashAttention's names, which Python users know.
  replace_words(text, "query_starts", "cu_seqlens_q");
  replace_words(text, "key_starts", "cu_seqlens_k");
  replace_words(text, "keep_qk", "keep=\"qk\"");
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i8, DType::u8}) {
    replace_words(text, name_of(dtype), python_name(dtype));
  }
  return text;
}

std::string message_of(const Error& error) {
  std::string function(error.function());
  if (const std::size_t at = function.find("::"); at != function.npos) function.replace(at, 2, ".");
  // A file's message has its path, which stays as it is.
  const std::string detail(error.detail());
  return function + (function.empty() ? "" : ": ") +
         (error.code() == ErrorCode::bad_file ? detail : translate_names(detail));
}

}  // namespace attend::python
