#include "cli/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "attend/io.h"
#include "cli/command.h"
#include "cli/open.h"

namespace attend::cli {

void add_page(App& app, PageArguments& arguments) {
  app.add_flag("--open", arguments.open,
               "Open the page in the browser: the one from -o FILE.html, else one in the cache folder");
  app.add_flag("--strict", arguments.strict,
               "Fail if the page would be larger than 64 MB. Without this option, a page that is too large leaves out "
               "q and k of the layers with the broadest heads, and says so");
}

bool is_page(const std::string& file) {
  return ending_of(file) == ".html";
}

void complete_files(const PageArguments& arguments, const char* name, std::vector<std::string>& files) {
  if (arguments.open && std::ranges::none_of(files, is_page)) files.push_back(cache_file(name));
}

void check_page(const PageArguments& arguments, const std::vector<std::string>& files) {
  if (arguments.strict && !arguments.open && std::ranges::none_of(files, is_page))
    throw UsageError("--strict: nothing uses it without a page: -o x.html or --open");
}

Page page_of(const Selection& selection, const PageArguments& arguments, const std::string& file) {
  RecordingPageOptions options{.item = selection.item, .file = file, .strict = arguments.strict};
  if (selection.head) options.head = head_name(selection.recording.at(*selection.layer).name, *selection.head);
  return recording_page(selection.recording, options);
}

void write_page(const std::string& file, const Page& page) {
  writing([&] { write_file(file, page.html); });
  if (!page.left_out.empty()) tell(fmt::format("attend: {} leaves out {} (--strict refuses)", file, page.left_out));
  if (!page.note.empty()) tell(fmt::format("attend: {} does not compute: {}", file, page.note));
}

void open_page(const PageArguments& arguments, const std::vector<std::string>& files) {
  if (arguments.open) open_in_browser(*std::ranges::find_if(files, is_page));
}

}  // namespace attend::cli
