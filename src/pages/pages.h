// What pages of recordings and of models share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "attend/pages.h"

namespace attend::inline v1 {

// recording_page() and live_page() of a library that was built with that explorer.html; empty: without.
Page recording_page(const Recording& recording, const RecordingPageOptions& options, std::string_view explorer);
#ifndef ATTEND_WITHOUT_MODELS
Page live_page(const std::filesystem::path& model, const Recording& text_recording, std::string_view text,
               const LivePageOptions& options, std::string_view explorer);
#endif

std::string pages_note(std::string_view explorer);

// For a page without JavaScript: no style attributes and no scripts, which explorer.html's policy refuses. lead: what
// the page is, in a paragraph's words.
std::string static_part(const Recording& recording, std::int64_t item, const std::string& lead,
                        const std::string& note);

// file: its bytes. model: the name that the title begins with.
std::string explorer_page(std::string_view explorer, std::string_view model, const std::string& shown,
                          const nlohmann::ordered_json& request, std::string_view file);

// "25.3 MB"
std::string megabytes(std::int64_t bytes);

}  // namespace attend::inline v1
