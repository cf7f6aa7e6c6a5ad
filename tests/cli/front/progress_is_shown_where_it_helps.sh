"$PYTHON" "$SUITE/../record/write_model.py" ckpt
export LOADPLAN_PROGRESS_STEP=1500
options="--checkpoint ckpt --tp 4 --rank all -f -o x.lpt"
short() { sed 's/names.*/names .../'; }
echo "--- a file is no terminal"
loadplan record $options 2>log
short <log
echo "--- a terminal: drawn after two seconds, erased before the summary"
"$PYTHON" "$SUITE/on_a_terminal.py" loadplan record $options | short
"$PYTHON" "$SUITE/on_a_terminal.py" loadplan record $options --no-progress | short
"$PYTHON" "$SUITE/on_a_terminal.py" loadplan record $options -q
echo "--- in the background of a terminal, and asked for"
loadplan record $options --progress 2>&1 | tr '\r\033' '<>' | short
echo "--- a log: a line for ten seconds"
LOADPLAN_PROGRESS=plain loadplan record $options 2>&1 | short
LOADPLAN_PROGRESS=plain LOADPLAN_PROGRESS_STEP=20000 loadplan record $options 2>&1 | short
LOADPLAN_PROGRESS=plain LOADPLAN_PROGRESS_STEP=20000 loadplan record $options -q
echo "--- bytes, long waits, and what machines read"
loadplan replay x.lpt --checkpoint ckpt -o out --progress 2>&1 >/dev/null | tr '\r\033' '<>' | grep -o 'replay  *[0-9]*% [^ ]* [KM]iB' | head -n 1 | sed 's/[0-9][0-9.]*/N/g'
LOADPLAN_PROGRESS_STEP=200000 loadplan record $options --progress 2>&1 | grep -o 'eta [0-9]*m[0-9]*s' | head -n 1
LOADPLAN_PROGRESS=plain loadplan replay x.lpt --checkpoint ckpt -f -o out --format=json -q
