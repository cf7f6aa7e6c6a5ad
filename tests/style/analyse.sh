#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A compilation of `make analyse`, with gcc's analyser. Its option is added here because clang-tidy reads the same
# command and does not know it.
exec "$@" -fanalyzer
