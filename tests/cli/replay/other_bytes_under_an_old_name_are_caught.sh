# The digests that a load keeps are compared by the next one: a file whose bytes changed and whose time did not is told.
. "$SUITE/../check/twin.bash"
write_good
weights ck
loadplan replay good.lpt --checkpoint ck -q --verify
test -e good.lpt.digests
loadplan replay good.lpt --checkpoint ck -q --verify
touch -r ck/model.safetensors stamp
cp ck/model.safetensors kept
printf '\377' | dd of=ck/model.safetensors bs=1 seek="$(($(stat -c %s ck/model.safetensors) - 5))" conv=notrunc status=none
touch -r stamp ck/model.safetensors
loadplan replay good.lpt --checkpoint ck -q --verify || echo "exit $?"
cat kept >ck/model.safetensors
touch -r stamp ck/model.safetensors
loadplan replay good.lpt --checkpoint ck -q --verify
echo "--- digests that cannot be kept do not stop a load"
echo damaged >good.lpt.digests
loadplan replay good.lpt --checkpoint ck -q -o out
loadplan replay good.lpt --checkpoint ck -o again 2>&1 | sed 's/^replay: .*/replay/'
cat good.lpt.digests
