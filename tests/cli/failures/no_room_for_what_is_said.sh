# Where the output cannot be written, every command says so and exits with 4: a report that is cut off is no report.
. "$SUITE/../check/twin.bash"
write_good
twin holes '/^copy .*layers.1.experts.1.up/d; s/records=8/records=7/'
code_of() {
    local code=0
    "$@" >/dev/full 2>said || code=$?
    echo "$code $(cat said) | ${*:2}"
}
code_of loadplan --version
code_of loadplan --help
code_of loadplan help
code_of loadplan help --format=scdoc check
code_of loadplan help --format=names
code_of loadplan check --help
code_of loadplan completion bash
code_of loadplan completion zsh
code_of loadplan completion fish
code_of loadplan bench --list
code_of loadplan bench --list --format=json
code_of loadplan layout
code_of loadplan layout --format=json
code_of loadplan doctor
code_of loadplan doctor --format=json
code_of loadplan dump good.lpt
code_of loadplan dump good.lpt --tensor '*up'
for format in text json; do
    code_of loadplan info --format=$format good.lpt
    code_of loadplan explain --format=$format good.lpt
    code_of loadplan explain --push-order --format=$format good.lpt
done
code_of loadplan explain --by layer good.lpt
code_of loadplan explain --tensor '*up' good.lpt
code_of loadplan explain --tensor '*0.up' --format=svg good.lpt
code_of loadplan report -o /dev/full -f good.lpt
code_of loadplan check -o /dev/full good.lpt
code_of loadplan check -f -o /dev/full good.lpt
code_of loadplan dump -f -o /dev/full good.lpt
code_of loadplan check good.lpt
code_of loadplan diff good.lpt good.lpt
for format in text json ndjson github sarif junit suppress; do
    code_of loadplan diff --format=$format good.lpt holes.lpt
done
echo "--- large ones fail while they are printed"
awk 'BEGIN {
    print "loadplan-trace 1000\nlayout pp=1 dp=1 tp=1 ep=0\nname \"n\" U8 [1]\nscope pp=0 dp=0 tp=0"
    for (i = 0; i < 676; i++) printf "dest \"d%c%c\" U8 [1] bytes=1 group=\"root\"\n", 97 + i / 26, 97 + i % 26
    for (i = 0; i < 676; i++) printf "copy \"n\" -> \"d%c%c\" src=0 dst=0 map=1\n", 97 + i / 26, 97 + i % 26
    print "END names=1 scopes=1 records=676 derives=0 refusals=0" }' >large.txt
loadplan undump -q large.txt -o large.lpt
sed '/^copy/d; s/records=676/records=0/' large.txt >holes.txt
loadplan undump -q -f holes.txt -o holes.lpt
code_of loadplan dump large.lpt
code_of loadplan dump large.lpt --tensor 'd*'
for format in text tsv json; do
    code_of loadplan query --format=$format large.lpt 'SELECT * FROM v_records'
done
for format in text json ndjson github sarif junit suppress; do
    code_of loadplan check --format=$format holes.lpt
done
