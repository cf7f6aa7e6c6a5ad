. "$SUITE/../check/twin.bash"
write_good
twin holes '/^copy .*layers.1.experts.1.up/d; s/records=8/records=7/'
# Prints whether the finding and the error came in colour.
coloured() {
    "$@" loadplan check holes.lpt $flags >out 2>err || true
    "$@" loadplan check missing.lpt $flags >>out 2>>err || true
    printf '%-28s out %s, err %s\n' "$* $flags" "$(grep -c $'\033' out || true)" "$(grep -c $'\033' err || true)"
}
flags=
coloured env
coloured env CLICOLOR_FORCE=1
coloured env CLICOLOR_FORCE=0
coloured env NO_COLOR=1 CLICOLOR_FORCE=1
coloured env NO_COLOR= CLICOLOR_FORCE=1
flags=--color=always coloured env NO_COLOR=1
flags=--color=never coloured env CLICOLOR_FORCE=1
flags=--color=always
loadplan check holes.lpt $flags --format=json >out || true
grep -c $'\033' out || true
flags=--color=auto
CLICOLOR_FORCE=1 loadplan check holes.lpt -o report.txt || true
grep -c $'\033' report.txt || true
"$PYTHON" "$SUITE/on_a_terminal.py" env TERM=xterm loadplan check missing.lpt || true
"$PYTHON" "$SUITE/on_a_terminal.py" env TERM=dumb loadplan check missing.lpt || true
