// Pages of recordings and models: -o FILE.html and --open of `show` and `model`.
#pragma once

#include <string>
#include <vector>

#include "attend/pages.h"
#include "cli/line.h"
#include "cli/show.h"

namespace attend::cli {

// Of the command line.
struct PageArguments {
  bool open = false, strict = false;
};

// --open and --strict.
void add_page(App& app, PageArguments& arguments);
bool is_page(const std::string& file);
// With --open: a page in the cache folder of that name where none of the files is one.
void complete_files(const PageArguments& arguments, const char* name, std::vector<std::string>& files);
// Throws UsageError for --strict without a page.
void check_page(const PageArguments& arguments, const std::vector<std::string>& files);

// Of a recording, as it was asked for. file: that it is in, or would be.
Page page_of(const Selection& selection, const PageArguments& arguments, const std::string& file);
// Writes it, and tells what it leaves out, or that it does not compute.
void write_page(const std::string& file, const Page& page);
// With --open, the first page of the files in the browser.
void open_page(const PageArguments& arguments, const std::vector<std::string>& files);

}  // namespace attend::cli
