# What an option may look like, and what is said where it may not.
. "$SUITE/../check/twin.bash"
write_good
weights good
says() { loadplan "$@" 2>said && echo "accepted: $*"; head -n 1 said | sed "s/^/$* -> /"; }
says info -z good.lpt
says info -qz good.lpt
says info -é good.lpt
says info --é good.lpt
says info good.lpt -o
says info good.lpt --output
says info --quiet=3 good.lpt
says --log=loud info good.lpt
says --nolog info good.lpt
says check
says check good.lpt other.lpt
says completion tcsh
says help nothing
loadplan help nothing 2>&1 | tail -n 1
says nothing
echo "--- numbers"
for n in '' 1x -1 ' 1' 9223372036854775808; do says info --families "$n" good.lpt; done
loadplan info --families +1 good.lpt | head -n 1
echo "--- sizes"
for n in '' -1 1KB 1.5K 9223372036854775808 9007199254740992KiB; do says replay --staging "$n" --checkpoint good -o out good.lpt; done
for n in 512 64K 2GiB; do loadplan replay -q --staging "$n" --checkpoint good --verify good.lpt; done
echo "--- ranks"
for n in '' ',' '0,' 0-x -1 1 0-1 1-0 0,0 0--0; do says explain --rank "$n" good.lpt; done
for n in 0 0-0 all; do loadplan explain -q --rank "$n" good.lpt | head -n 1; done
echo "--- louder and quieter"
loadplan -v --no-verbose check --rule=derive_cycle=warn --rule dest_alias=warn -- good.lpt
loadplan -qq info absent.lpt || echo "exit $?"
loadplan -q info absent.lpt || echo "exit $?"
loadplan -qq --no-quiet info absent.lpt || echo "exit $?"
loadplan -qq info --nothing || echo "exit $?"
loadplan -q --version
loadplan check --help | head -n 1
loadplan --help | head -n 1
echo "--- given in vain"
warned() { "$@" 2>said >/dev/null; cat said; }
warned loadplan explain good.lpt --senders 3 -f
warned loadplan layout --unit 16 --no-pad
LOADPLAN_THREADS=2 warned loadplan replay good.lpt --dry-run
warned loadplan -q explain good.lpt --senders 3
loadplan check good.lpt --ops '' || echo "exit $?"
echo "--- a variable that was not set"
for option in --tensor --checkpoint --config --suppressions --summary-file --output -o; do
    loadplan check good.lpt $option '' || echo "exit $?"
done
loadplan check good.lpt --ops ,, || echo "exit $?"
loadplan diff --against '' good.lpt || echo "exit $?"
loadplan info good.lpt -o '' || echo "exit $?"
test ! -e .partial
echo "--- no file for standard output"
for command in info dump check; do
    loadplan "$command" good.lpt -o - || echo "exit $?"
done
test ! -e ./-
loadplan dump good.lpt -o ./-
test -s ./-
