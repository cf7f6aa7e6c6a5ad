# A full disk (here: a limit on the size of files) leaves the old file as it was, and nothing half-written beside it.
text=$TESTS/fuzz/corpus/dump/everything
echo old >x.lpt
trap '' XFSZ
code=0
(ulimit -f 16 && loadplan undump -f "$text" -o x.lpt) 2>said || code=$?
cat said >&2
echo "exit $code"
cat x.lpt
ls
