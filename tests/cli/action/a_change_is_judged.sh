. "$SUITE/runner.bash"
write_good
twin pr 's/0x3f800000/0x3f000000/'
echo "--- the same"
action NEW=good.lpt BASE=good.lpt
echo "--- changed"
action NEW=pr.lpt BASE=good.lpt SARIF=out.sarif
grep -c '"ruleId": "derive_changed"' out.sarif
grep -c '^| deny | derive_changed' runner/summary
echo "--- accepted"
echo 'derive_changed layers.*.l2_scale the engine halves it' > accepted
action NEW=pr.lpt BASE=good.lpt SUPPRESSIONS=accepted
echo "--- only reported"
action NEW=pr.lpt BASE=good.lpt FAIL_ON=never
echo "--- recorded by the step"
action NEW=new.lpt BASE=good.lpt RECORD='cp good.lpt "new.lpt"'
echo "--- incomplete as well"
twin holes '/^copy .*layers.1.experts.1.up/d; s/records=8/records=7/'
action NEW=holes.lpt BASE=good.lpt
echo "--- incomplete, and nothing to compare with"
action NEW=holes.lpt
