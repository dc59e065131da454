// A page with the model itself in it.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "attend/models.h"
#include "core/base64.h"
#include "core/message.h"
#include "core/utf8.h"
#include "html/page.h"
#include "io/file.h"
#include "io/gzip.h"
#include "look/maps.h"
#include "models/gguf/file.h"
#include "pages/pages.h"

namespace attend::inline v1 {

namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* live_page_function = "live_page";

[[noreturn]] void fail_too_large(const std::string& what, std::int64_t bytes, std::int64_t budget) {
  fail(ErrorCode::bad_value, live_page_function,
       "{} takes {}, and the page may take {}: take a model with fewer weights, or one in Q4_0, as `attend quantize "
       "--type q4_0` makes it",
       what, megabytes(bytes), megabytes(budget));
}

// In a file without a name, which is gone with the process, however that ends.
std::string quantized(const fs::path& folder) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  if (!file) fail(ErrorCode::bad_file, live_page_function, "no temporary file: {}", std::strerror(errno));
  const fs::path path = fmt::format("/dev/fd/{}", fileno(file.get()));
  (void)quantize(folder, path, QuantizedType::q8_0);
  const InputFile written(live_page_function, path);
  return written.read(0, written.size());
}

// The .gguf file that goes into the page.
std::string file_of(const fs::path& path, std::int64_t budget) {
  if (models::is_gguf_file(path)) {
    const InputFile file(live_page_function, path);
    if (const auto size = static_cast<std::int64_t>(file.size()); size > budget)
      fail_too_large("the file", size, budget);
    return file.read(0, file.size());
  }
  // 34 bytes for 32 numbers.
  const std::int64_t least = Model::load(path).info().parameters / 32 * 34;
  if (least > budget) fail_too_large("the model in Q8_0", least, budget);
  return quantized(path);
}

std::string name_of_file(const fs::path& path) {
  fs::path place = fs::absolute(path).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  const std::string name = place.filename().string();
  return models::is_gguf_file(path) ? name : name + ".gguf";
}

}  // namespace

Page live_page(const fs::path& model, const Recording& text_recording, std::string_view text,
               const LivePageOptions& options, std::string_view explorer) {
  if (explorer.empty()) fail(ErrorCode::bad_value, live_page_function, "{}", pages_note(explorer));
  if (text_recording.activations != Activations::exact)
    fail(ErrorCode::bad_value, live_page_function,
         "the recording is of {} activations, and the page computes with exact ones",
         name_of(text_recording.activations));
  const auto checked = [](std::string_view of, const char* what) {
    decode_utf8(of, {live_page_function, what});
    return ordered_json(of);
  };
  const auto or_null = [&](const std::optional<std::string>& of, const char* what) {
    return of ? checked(*of, what) : ordered_json();
  };
  const fs::path path = find_model(model);
  const std::string file_name = name_of_file(path);
  const std::string name = !options.name.empty() ? options.name : fs::path(file_name).stem().string();
  ordered_json request = {{"model", {{"file", file_name}, {"bytes", 0}, {"name", name}}},
                          {"text", checked(text, "text")},
                          {"second", or_null(options.second, "second")},
                          {"why", or_null(options.why, "why")},
                          {"against", or_null(options.against, "against")},
                          {"chat", options.chat}};
  const std::string lead = fmt::format(
      "This page has the model {} in it, and computes whatever is typed, without a network, where JavaScript runs. "
      "Here is "
      "what its heads attend to in “{}”: each map has a row for each token that looks, and a column for each that is "
      "looked "
      "at; the darker, the more of the attention.",
      name, text);
  const std::string shown = static_part(text_recording, 0, lead, "");
  std::string packed;
  {
    const std::string file = file_of(path, options.budget);
    request["model"]["bytes"] = file.size();
    packed = base64(gzip(file));
  }
  Page page{.html = explorer_page(explorer, name, shown, request, packed)};
  if (std::ssize(page.html) > options.budget) fail_too_large("the page", std::ssize(page.html), options.budget);
  return page;
}

Page live_page(const fs::path& model, const Recording& text_recording, std::string_view text,
               const LivePageOptions& options) {
  return live_page(model, text_recording, text, options, built_explorer());
}

}  // namespace attend::inline v1
