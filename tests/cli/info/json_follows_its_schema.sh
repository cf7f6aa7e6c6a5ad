"$PYTHON" "$SUITE/../record/write_model.py" ckpt
loadplan record -q --checkpoint ckpt --tp 2 -o x.lpt
loadplan info -q ckpt --save-headers ckpt.headers
for path in ckpt ckpt.headers x.lpt; do
    loadplan info $path --format=json --tensors -f -o out.json
    "$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/info.json" out.json
done
sed -i 's/"set_digest": "lp1:/"set_digest": "/' out.json
"$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/info.json" out.json >wrong && exit 9
grep -c 'set_digest' wrong
