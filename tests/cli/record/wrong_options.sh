usage() { loadplan record "$@" && echo "accepted: $*"; test $? = 2 && echo "exit 2" >&2; }
"$PYTHON" "$SUITE/write_model.py" ckpt
usage
usage --checkpoint ckpt
usage -o x.lpt
usage --checkpoint ckpt -o x.lpt --ep 4 --tp 3
usage --checkpoint ckpt -o x.lpt --ep 4 --tp 2 --dp 4
usage --checkpoint ckpt -o x.lpt --tp 0
usage --checkpoint ckpt -o x.lpt --tp 2 --rank 2
usage --checkpoint ckpt -o x.lpt --tp 3
usage --checkpoint ckpt -o x.lpt --loader nothing
usage --checkpoint ckpt -o x.lpt --rest perhaps
usage --checkpoint ckpt -o x.lpt surplus
echo keep > kept.lpt
usage --checkpoint ckpt -o kept.lpt
cat kept.lpt
loadplan record --checkpoint ckpt -o kept.lpt -f -q
test "$(head -c 6 kept.lpt)" = SQLite
ls
