vcpkg_download_distfile(ARCHIVE
    URLS "https://example.org/attend/attend-1.0.0-rc1.tar.gz"
    FILENAME "attend-1.0.0-rc1.tar.gz"
    SHA512 00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
    FEATURES
        models   ATTEND_MODELS
        pictures ATTEND_PICTURES
        tools    ATTEND_BUILD_COMMAND
)

if("pictures" IN_LIST FEATURES)
    # The labels of pictures are drawn in DejaVu Sans, which becomes part of the library. vcpkg has no port of it.
    set(font_archive "${DOWNLOADS}/dejavu-fonts-ttf-2.37.tar.bz2")
    file(DOWNLOAD
        "https://github.com/dejavu-fonts/dejavu-fonts/releases/download/version_2_37/dejavu-fonts-ttf-2.37.tar.bz2" "${font_archive}"
        EXPECTED_HASH SHA256=fa9ca4d13871dd122f61258a80d01751d603b4d3ee14095d65453b4e846e17d7
    )
    vcpkg_extract_source_archive(FONTS ARCHIVE "${font_archive}")
    list(APPEND FEATURE_OPTIONS "-DATTEND_FONT_FILE=${FONTS}/ttf/DejaVuSans.ttf")
endif()

vcpkg_find_acquire_program(PKGCONFIG)
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        ${FEATURE_OPTIONS}
        "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}"
        -DATTEND_BUILD_EXAMPLES=OFF
    OPTIONS_DEBUG
        -DATTEND_BUILD_COMMAND=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/attend)
vcpkg_fixup_pkgconfig()

if("tools" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES attend AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share" "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE" "${SOURCE_PATH}/NOTICE")
