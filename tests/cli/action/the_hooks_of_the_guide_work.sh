. "$SUITE/runner.bash"
write_good
twin pr 's/0x3f800000/0x3f000000/'
twin holes '/^copy .*layers.1.experts.1.up/d; s/records=8/records=7/'
# The entries of the pre-commit example, as pre-commit would call them: the words of the line, then the files.
entry() {
    sed -n "/id: $1\$/,/entry:/s/^ *entry: //p" "$TESTS/../docs/ci.md"
}
[ -n "$(entry loadplan-check)" ] && [ -n "$(entry loadplan-diff)" ]
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main .
cp good.lpt plan.lpt
git add plan.lpt && git commit -q -m base
eval "$(entry loadplan-check) good.lpt pr.lpt"
eval "$(entry loadplan-check) good.lpt holes.lpt" || echo "exit $?"
eval "$(entry loadplan-diff) plan.lpt"
cp pr.lpt plan.lpt
eval "$(entry loadplan-diff) plan.lpt new.lpt" || echo "exit $?"
