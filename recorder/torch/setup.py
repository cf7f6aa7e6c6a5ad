# SPDX-License-Identifier: Apache-2.0
"""Puts the C library and the licences of what is in it into the wheel, and says that the wheel is of one platform.

The library is $LOADPLAN_LIBRARY, or build/libloadplan.so of this repository; the build leaves the licences beside it. Without
one the wheel is a pure one, which uses the library that the system has. Everything else is in pyproject.toml.
"""
import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = pathlib.Path(os.environ.get("LOADPLAN_LIBRARY") or HERE.parent.parent / "build" / "libloadplan.so")
if os.environ.get("LOADPLAN_LIBRARY") and not LIBRARY.exists():
    raise SystemExit(f"LOADPLAN_LIBRARY: there is no '{LIBRARY}'")


class with_library(build_py):
    def run(self):
        super().run()
        if LIBRARY.exists():
            target = pathlib.Path(self.build_lib) / "loadplan" / "libloadplan.so"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(LIBRARY.resolve(), target)
            licence = LIBRARY.resolve().parent / "copyright"
            if licence.exists():
                shutil.copyfile(licence, target.with_name("LICENSE"))


class of_platform(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not LIBRARY.exists()

    def get_tag(self):
        python, abi, platform = super().get_tag()
        return ("py3", "none", platform) if LIBRARY.exists() else (python, abi, platform)


setup(cmdclass={"build_py": with_library, "bdist_wheel": of_platform})
