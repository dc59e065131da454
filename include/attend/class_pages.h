// A school class in one folder: guided experiments on real models as pages for a web host, a memory stick or a disk,
// without a network (docs/teach.md).
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

namespace attend::inline v1 {

struct ATTEND_API ClassOptions {
  // all-MiniLM-L6-v2 and SmolLM2-135M-Instruct, whose heads the experiments name; as for find_model().
  std::filesystem::path minilm = "minilm", smollm2 = "smollm2";
  bool with_smollm2 = false;                  // add a page with SmolLM2, where its experiments continue
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};

// Computes the experiments' answers and makes the pages, calling write() with each file's name and bytes. Throws
// bad_file for a missing model, bad_value for another model and if the library lacks its pages, and what write()
// throws.
ATTEND_API void class_pages(const ClassOptions& options,
                            const std::function<void(const std::string& name, const std::string& bytes)>& write);

}  // namespace attend::inline v1
