#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs prebuilt GPU tests and benches on a machine that has only a GPU and a driver.
#
#   tests/gpu/run.sh BUILD [LOG]     BUILD: where the programs are; LOG: folder of full logs, default BUILD/logs
#
# PLANS (default 100000) is the number of random plans; SANITIZE=0 leaves compute-sanitizer out.
build=$1
logs=${2:-$build/logs}
failed=0
LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
mkdir -p "$logs"

# name, command...
step()
{
    name=$1
    shift
    if "$@" >"$logs/$name.txt" 2>&1; then
        echo "ok      $name: $(tail -n 1 "$logs/$name.txt" | cut -c 1-150)"
    else
        failed=1
        echo "FAILED  $name"
        tail -n 5 "$logs/$name.txt"
    fi
}

for test in casts graph layouts plan digest derive session ipc rebalance cold change; do
    step "device_$test" "$build/test_device_$test"
done
for test in conversions megamoe megamoe_replay moe_exchange moe_processes; do
    step "$test" "$build/test_$test"
done
step device_copy "$build/test_device_copy" "${PLANS:-100000}"
if [ "${SANITIZE:-1}" = 1 ]; then
    for tool in memcheck racecheck initcheck; do
        step "${tool}_copy" compute-sanitizer --tool $tool --error-exitcode 9 "$build/test_device_copy" 300
        step "${tool}_graph" compute-sanitizer --tool $tool --error-exitcode 9 "$build/test_device_graph"
        step "${tool}_digest" compute-sanitizer --tool $tool --error-exitcode 9 "$build/test_device_digest" 100
    done
    step memcheck_plan compute-sanitizer --tool memcheck --error-exitcode 9 "$build/test_device_plan"
    step memcheck_derive compute-sanitizer --tool memcheck --error-exitcode 9 "$build/test_device_derive"
    step racecheck_plan compute-sanitizer --tool racecheck --error-exitcode 9 "$build/test_device_plan"
    step initcheck_change compute-sanitizer --tool initcheck --error-exitcode 9 "$build/test_device_change" 1 1
    step memcheck_cold compute-sanitizer --tool memcheck --error-exitcode 9 "$build/test_device_cold" 3
    step memcheck_rebalance compute-sanitizer --tool memcheck --error-exitcode 9 "$build/test_device_rebalance"
    step memcheck_session compute-sanitizer --tool memcheck --error-exitcode 9 "$build/test_device_session" 9
fi
"$build/bench_device" | tee "$logs/bench.txt"
"$build/bench_digest" | tee -a "$logs/bench.txt"
exit $failed
