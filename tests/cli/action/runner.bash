# A pretended runner: `action NAME=VALUE...` runs the step of the action with these inputs, as a workflow would.
. "$SUITE/../check/twin.bash"
action_folder=$TESTS/../.github/actions/loadplan-diff
action() {
    mkdir -p runner
    : > runner/output
    : > runner/summary
    local pair environment=()
    for pair in "$@"; do environment+=("INPUT_$pair"); done
    env "${environment[@]}" RUNNER_TEMP="$PWD/runner" GITHUB_OUTPUT="$PWD/runner/output" \
        GITHUB_STEP_SUMMARY="$PWD/runner/summary" GITHUB_ACTION_PATH="$action_folder" GITHUB_ACTIONS=true \
        "$action_folder/diff.sh" || echo "exit $?"
    sed 's/^/output: /' runner/output
    [ -z "$(ls -d runner/loadplan-* 2>/dev/null)" ] || echo "temporary files are left"
}
