# The help of check and diff names the rules that each of them judges by.
. "$SUITE/../check/twin.bash"
write_good
rules() { loadplan "$@" --format=junit | sed -n 's/.*classname="rules" name="\([a-z_]*\)".*/\1/p'; }
for command in "check good.lpt" "diff good.lpt good.lpt"; do
    loadplan help ${command%% *} | tr -s ' ,;.\n' '\n' >words
    for rule in $(rules $command); do grep -qx "$rule" words || echo "$rule is not in the help of '$command'"; done
    rules $command | wc -l
done
