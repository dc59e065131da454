import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, rmdir
from conan.tools.gnu import PkgConfigDeps
from conan.tools.scm import Version


class AttendConan(ConanFile):
    name = "attend"
    version = "1.0.0-rc1"
    package_type = "library"
    description = "Transformer attention on a CPU: exact, fast, and explained"
    license = "Apache-2.0"
    url = homepage = "https://example.org/attend"
    topics = ("attention", "transformer", "interpretability", "cpu")
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "models": [True, False], "pictures": [True, False], "command": [True, False]}
    default_options = {"shared": False, "fPIC": True, "models": True, "pictures": True, "command": False}
    implements = ("auto_shared_fpic",)

    def layout(self):
        cmake_layout(self, src_folder="src")

    # A range is no wider than the versions that are known to do: Debian 12's and what scripts/sources.txt has.
    def requirements(self):
        self.requires("fmt/[>=9.1 <13]")
        self.requires("nlohmann_json/[>=3.11 <4]")
        self.requires("onetbb/[>=2021.8 <2024]")
        self.requires("zlib/[>=1.2.13 <2]")
        if self.options.models:
            self.requires("pcre2/[>=10.40 <11]")
            self.requires("utf8proc/[>=2.8 <3]")
        if self.options.pictures:
            self.requires("freetype/[>=2.12 <3]")
            self.requires("libpng/[>=1.6 <2]")
        if self.options.command:
            self.requires("cli11/[>=2.1 <3]")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25]")
        if self.options.models and not self.conf.get("tools.gnu:pkg_config", check_type=str):
            self.tool_requires("pkgconf/[>=2.2 <3]")

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("attend is built for Linux on x86-64 and AArch64")
        oldest = {"gcc": "12", "clang": "16"}.get(str(self.settings.compiler))
        if oldest and Version(self.settings.compiler.version) < oldest:
            raise ConanInvalidConfiguration(f"attend needs {self.settings.compiler} {oldest} or later")
        if self.options.command and not (self.options.models and self.options.pictures):
            raise ConanInvalidConfiguration("command=True needs models=True and pictures=True")

    # A DejaVuSans.ttf of this machine's instead of the one that is fetched: -c user.attend:font_file=PATH
    @property
    def _font_file(self):
        return self.conf.get("user.attend:font_file", check_type=str)

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["ATTEND_MODELS"] = bool(self.options.models)
        toolchain.cache_variables["ATTEND_PICTURES"] = bool(self.options.pictures)
        toolchain.cache_variables["ATTEND_BUILD_COMMAND"] = bool(self.options.command)
        toolchain.cache_variables["ATTEND_BUILD_EXAMPLES"] = False
        toolchain.cache_variables["ATTEND_UNITY_BUILD"] = True
        if self.options.pictures:
            font = self._font_file or os.path.join(self.build_folder, "font/ttf/DejaVuSans.ttf")
            toolchain.cache_variables["ATTEND_FONT_FILE"] = font
        toolchain.generate()
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()  # PCRE2 and utf8proc are found by pkg-config

    def build(self):
        if self.options.pictures and not self._font_file:
            get(self, **self.conan_data["font"], strip_root=True, destination=os.path.join(self.build_folder, "font"))
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        for name in ("LICENSE", "NOTICE"):
            copy(self, name, self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        for folder in ("lib/cmake", "lib/pkgconfig", "share/doc"):
            rmdir(self, os.path.join(self.package_folder, folder))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "attend")
        self.cpp_info.set_property("cmake_target_name", "attend::attend")
        self.cpp_info.set_property("pkg_config_name", "attend")
        self.cpp_info.libs = ["attend"]
        self.cpp_info.system_libs = ["m", "pthread"]
        for option in ("models", "pictures"):
            if not self.options.get_safe(option):
                self.cpp_info.defines.append(f"ATTEND_WITHOUT_{option.upper()}")
