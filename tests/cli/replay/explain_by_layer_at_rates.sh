$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan explain x.lpt --by layer --rate disk=2MB/s,link=1GiB/s,device=0.5MB/s
echo "--- rates of the repository, and flags over them"
mkdir -p .git
printf 'rate.disk = 1.5 KB/s\nrate.device = 3TB/s\n' > loadplan.conf
loadplan explain x.lpt --rank 0 | grep estimates
loadplan explain x.lpt --rank 0 --rate disk=64 | grep estimates
echo 'rate.disk = fast' > loadplan.conf
loadplan explain x.lpt --rank 0 || echo "exit $?"
rm loadplan.conf
loadplan explain x.lpt --rate disc=1GB/s || echo "exit $?"
loadplan explain x.lpt --rate disk=1.2.3GB/s || echo "exit $?"
loadplan explain x.lpt --rate disk=0GB/s || echo "exit $?"
echo "--- the JSON follows its schema"
loadplan explain x.lpt --by family --format=json -o families.json
loadplan explain x.lpt --by layer --format=json -o layers.json
for by in families layers; do
    "$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/explain.json" $by.json
done
