loadplan undump -q "$TESTS/fuzz/corpus/dump/small" -o a.lpt
try() {
    code=0
    loadplan dump bad.lpt || code=$?
    echo "exit $code"
}
head -c 5000 a.lpt > bad.lpt
try
head -c 40 a.lpt > bad.lpt
try
"$PYTHON" - <<'END'
data = bytearray(open("a.lpt", "rb").read())
data[60:64] = (3007).to_bytes(4, "big")
open("bad.lpt", "wb").write(data)
END
try
"$PYTHON" - <<'END'
import sqlite3
with sqlite3.connect("other.db") as db:
    db.execute("CREATE TABLE t(a)")
END
mv other.db bad.lpt
try
rm bad.lpt
try
