// A class in one folder: guided experiments on real models, with the pages that they open, for any static host, a
// memory stick or a folder on a disk (docs/teach.md). Nothing in it needs a network.
#pragma once

#ifdef ATTEND_WITHOUT_PICTURES
#error "attend was built with ATTEND_PICTURES=OFF: it has no class_pages.h"
#endif
#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no class_pages.h"
#endif

#include <filesystem>
#include <functional>
#include <string>

#include "attend/api.h"

namespace attend::inline v0 {

struct ATTEND_API ClassOptions {
  // all-MiniLM-L6-v2 and SmolLM2-135M-Instruct, whose heads the experiments name: as find_model() takes them.
  std::filesystem::path minilm = "minilm", smollm2 = "smollm2";
  bool with_smollm2 = false;                  // a page with SmolLM2 in it, too, on which its experiments go on
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
};

// Computes the experiments' answers and makes the pages: write() is given each file's name and bytes as soon as it is
// made. Throws bad_file for a model that is not there, bad_value where the library was built without its pages and for
// a model that is not the one that it should be, and what write() throws.
ATTEND_API void class_pages(const ClassOptions& options,
                            const std::function<void(const std::string& name, const std::string& bytes)>& write);

}  // namespace attend::inline v0
