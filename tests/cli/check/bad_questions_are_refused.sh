. "$SUITE/twin.bash"
write_good
loadplan check good.lpt --rule no_such_rule=deny && exit 9
loadplan check good.lpt --rule dest_uncoverd=warn && exit 9
loadplan check good.lpt --rule undecided=maybe && exit 9
loadplan check absent.lpt && exit 9
echo "exit $?"
weights ck
mkfifo pipe
for mistaken in ck ck/model.safetensors pipe; do loadplan check $mistaken && exit 9; done
loadplan check good.txt
