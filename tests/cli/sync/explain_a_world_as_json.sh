. "$SUITE/peers.bash"
$PYTHON "$TESTS/cli/replay/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 4 -q -o server.lpt
loadplan record --checkpoint ck --loader dense --tp 2 -q -o trainer.lpt
loadplan explain server.lpt --world --trainer trainer.lpt --format json >world.json
"$PYTHON" "$TESTS/cli/findings/schema_check.py" "$TESTS/../docs/schemas/explain-world.json" world.json
$PYTHON - <<'END'
import json
w = json.load(open("world.json"))
cold, sync = w["cold_start"], w["sync"]
print(w["format"], w["command"], w["trace"])
print(cold["bytes_read"] <= 1.05 * cold["bytes_union"], cold["bytes_read"] == cold["bytes_own"] + cold["bytes_shared"])
print(sum(f["bytes_needed"] for f in cold["families"]) == cold["bytes_needed"] == sync["bytes_needed"] == sync["bytes_sliced"])
print(sync["senders"], sync["receivers"], sync["least_sent"] <= sync["bytes_sliced"] // 2 <= sync["most_sent"])
END
echo "== a name of a file that is not UTF-8"
cp server.lpt $'\xff.lpt'
loadplan explain $'\xff.lpt' --world --trainer trainer.lpt --format json | grep '"trace"'
echo "== a trainer that holds less than the servers need"
loadplan record --checkpoint ck --loader dense --tp 2 --rank 0 -q -o half.lpt
loadplan explain server.lpt --world --trainer half.lpt 2>&1 || echo "exit code $?"
