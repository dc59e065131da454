// Pages: one HTML file, opened without a network, that has a recording, or a model, and shows every head of it; what is
// zoomed into or typed is computed there (docs/page.md).
#pragma once

#ifdef ATTEND_WITHOUT_PICTURES
#error "attend was built with ATTEND_PICTURES=OFF: it has no pages.h"
#endif

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "attend/api.h"
#include "attend/recording.h"

namespace attend::inline v0 {

struct ATTEND_API Page {
  std::string html;
  std::string left_out = {};  // what of the recording it leaves out, in words; empty: nothing
  // Why it is a picture with words and computes nothing: the library was built without the page that computes. Empty:
  // it computes.
  std::string note = {};
};

// Page::note of all pages that are made here.
ATTEND_API std::string pages_note();

struct ATTEND_API RecordingPageOptions {
  std::int64_t item = 0;                  // of a batch, the text that is shown first
  std::string head = {};                  // "18.6": that is shown first; empty: all
  std::string file = "recording.attend";  // the name that the page has for the recording's file
  // Bytes that the page may take. What is larger has maps of 64 x 64 blocks where q and k are kept, from which any part
  // is exact again. If that is not enough, it leaves out q and k of the layers with the broadest heads first, whose
  // weights are of blocks then and not exact, and at last such maps of all layers. strict: throws bad_value before
  // anything is lost.
  std::int64_t budget = 64'000'000;
  bool strict = false;
};
// Throws bad_value for an item or a head that is not there, for text that is not UTF-8, and for a recording that passes
// the budget whatever is left out.
ATTEND_API Page recording_page(const Recording& recording, const RecordingPageOptions& options = {});

#ifndef ATTEND_WITHOUT_MODELS
struct ATTEND_API LivePageOptions {
  std::string name = {};                    // of the model; empty: that of its folder or file
  std::optional<std::string> second = {};   // encoders: a sentence that the text is compared with
  std::optional<std::string> why = {};      // decoders: a token, such as " Paris", of which the page says why
  std::optional<std::string> against = {};  // and against which other one
  bool chat = false;                        // the text is what someone says to the model
  std::int64_t budget = 150'000'000;        // bytes that the page may take
};
// The page with the model itself, which computes `text` first and then whatever is typed. model: a name, folder or file
// as find_model() takes it: a .gguf file goes in as it is, a folder in Q8_0 as quantize() makes it. text_recording: of
// that text, for those who see the page without JavaScript. Throws bad_value where the library was built without the
// page (pages_note() says so before) and for a model that passes the budget, bad_file as quantize() does.
ATTEND_API Page live_page(const std::filesystem::path& model, const Recording& text_recording, std::string_view text,
                          const LivePageOptions& options = {});
#endif

}  // namespace attend::inline v0
