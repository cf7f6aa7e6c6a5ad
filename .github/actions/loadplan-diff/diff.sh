#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The action's one step: records where asked to, checks the new trace, and compares it with the base. Everything comes in
# by INPUT_* variables (action.yml) and goes out as annotations, a Markdown summary and step outputs. Runs anywhere.
set -euo pipefail

loadplan=${INPUT_LOADPLAN:-loadplan}
new=${INPUT_NEW:?the input new is missing}
base=${INPUT_BASE:-}
temporary=$(mktemp -d "${RUNNER_TEMP:-/tmp}/loadplan-XXXXXX")
trap 'rm -rf "$temporary"' EXIT

trouble() {
    echo "::error title=loadplan::$1"
    exit "$2"
}

# Outputs are lines NAME=VALUE; what is printed here holds no line end.
output() {
    [ -z "${GITHUB_OUTPUT:-}" ] || printf '%s=%s\n' "$1" "$2" >> "$GITHUB_OUTPUT"
}

command -v "$loadplan" >/dev/null || trouble "the program '$loadplan' is not installed" 4

if [ -n "${INPUT_RECORD:-}" ]; then
    bash -euo pipefail -c "$INPUT_RECORD" || trouble "recording '$new' failed" 4
fi
[ -f "$new" ] || trouble "there is no trace '$new'" 4

judge=()
[ -z "${INPUT_FAIL_ON:-}" ] || judge+=("--fail-on=$INPUT_FAIL_ON")
[ -z "${INPUT_SUPPRESSIONS:-}" ] || judge+=("--suppressions=$INPUT_SUPPRESSIONS")
page=()
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || page=("--summary-file=$GITHUB_STEP_SUMMARY")

first_line() {
    "$loadplan" "$@" "${judge[@]}" --exit-zero -q | head -n 1
}

# The base of a pull request is in its history: REV:PATH.
if [ -n "$base" ] && [ ! -f "$base" ]; then
    [[ $base == *:* ]] || trouble "there is no trace '$base'" 4
    git rev-parse -q --verify "${base%%:*}^{commit}" >/dev/null || trouble "there is no revision '${base%%:*}'" 4
    if git show "$base" > "$temporary/base.lpt" 2>/dev/null; then
        base=$temporary/base.lpt
    else
        echo "::notice title=loadplan::'$base' does not exist: the first trace has nothing to be compared with"
        base=
    fi
fi

# A step shows about ten annotations, and each report brings ten: where there is a base, they are those of diff.
check_format=github
[ -z "$base" ] || check_format=text

verdict=0
"$loadplan" check "$new" "--format=$check_format" "${judge[@]}" "${page[@]}" || verdict=$?
[ "$verdict" -le 1 ] || trouble "check ended with exit code $verdict" "$verdict"
summary=$(first_line check "$new")

if [ -n "$base" ]; then
    code=0
    "$loadplan" diff "$base" "$new" --format=github "${judge[@]}" "${page[@]}" || code=$?
    [ "$code" -le 1 ] || trouble "diff ended with exit code $code" "$code"
    [ "$verdict" -eq 0 ] || echo "::error title=loadplan check::$summary"
    [ "$code" -eq 0 ] || verdict=$code
    summary=$(first_line diff "$base" "$new")
    if [ -n "${INPUT_SARIF:-}" ]; then
        "$loadplan" diff "$base" "$new" --format=sarif "${judge[@]}" --exit-zero -q -f -o "$INPUT_SARIF"
    fi
fi

output summary "$summary"
output verdict "$([ "$verdict" -eq 0 ] && echo ok || echo no)"
exit "$verdict"
