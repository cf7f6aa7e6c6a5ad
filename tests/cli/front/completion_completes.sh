. "$SUITE/../check/twin.bash"
write_good
loadplan completion bash >bash.sh
. ./bash.sh
compopt() { :; }
# Words as bash splits them: at '=' too.
try() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _loadplan
    echo "$*: ${COMPREPLY[*]}"
}
try loadplan rep
try loadplan -q dif
try loadplan check --fail
try loadplan check --fail-on w
try loadplan check --format = j
try loadplan check --format =
try loadplan --color = al
try loadplan help comp
try loadplan completion f
try loadplan check good.lpt --tensor = layers.0
try loadplan check good.l
# Names of tensors are those of a file that may come from anybody: they are quoted, never run.
"$PYTHON" "$SUITE/../record/write_model.py" model --extra '$(touch${IFS}ran)' --extra '`touch ran`' --extra "a'b" --extra 'a*b c' \
    --extra '${HOME}' --extra '~root' --extra '\'
loadplan record -q --checkpoint model --rest=copy -o any.lpt
try loadplan check any.lpt --tensor ''
try loadplan check any.lpt --tensor a
try loadplan check any.lpt --tensor "a\\'"
try loadplan check any.lpt --tensor "x' OR 1 --"
# The other shells, where they are installed.
loadplan completion zsh >_loadplan
loadplan completion fish >loadplan.fish
! command -v zsh >/dev/null || zsh -f -n _loadplan
if command -v fish >/dev/null; then
    fish --no-config -n loadplan.fish
    HOME=$PWD fish --no-config -c 'source loadplan.fish; complete -C "loadplan check --format=j"' | cut -f1 >seen
    HOME=$PWD fish --no-config -c 'source loadplan.fish; complete -C "loadplan check good.lpt --tensor layers.0"' | cut -f1 >>seen
    printf '%s\n' --format=json --format=junit layers.0.l2_scale layers.0.scales layers.0.up | diff seen -
    HOME=$PWD fish --no-config -c 'source loadplan.fish; complete -C "loadplan check any.lpt --tensor a"' | cut -f1 >seen
    printf '%s\n' "a'b" 'a*b c' | LC_ALL=C sort | diff - <(LC_ALL=C sort seen)
fi
[ ! -e ran ]
