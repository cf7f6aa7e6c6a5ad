. "$SUITE/runner.bash"
write_good
twin pr 's/0x3f800000/0x3f000000/'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main .
cp good.lpt plan.lpt
git add plan.lpt && git commit -q -m base
cp pr.lpt plan.lpt
action NEW=plan.lpt BASE=main:plan.lpt
echo "--- a trace that is new"
action NEW=pr.lpt BASE=main:pr.lpt
echo "--- a revision that is not there"
action NEW=pr.lpt BASE=origin/none:plan.lpt
