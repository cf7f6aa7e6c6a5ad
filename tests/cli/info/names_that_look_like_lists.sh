# Long lists are written one element at a time into the place of an empty list: no name can be taken for that place.
"$PYTHON" - <<'END'
import json, struct
names = ['"families": []', '"catalogue": []', 'x"families": []', '\n "catalogue": []\n', '{"families": [', "plain\x7f"]
header = {"__metadata__": {'"families": []': '"catalogue": []'}}
header |= {name: {"dtype": "U8", "shape": [0, 0], "data_offsets": [0, 0]} for name in names}
text = json.dumps(header).encode()
open('"catalogue": []', "wb").write(struct.pack("<Q", len(text)) + text)
END
for options in "" "--tensors" "--families=0 --tensors" "--families=2"; do
    # shellcheck disable=SC2086
    loadplan info '"catalogue": []' --format=json $options > out.json
    "$PYTHON" - $options <<'END'
import json, sys
text = open("out.json").read()
read = json.loads(text)
names = ['"families": []', '"catalogue": []', 'x"families": []', '\n "catalogue": []\n', '{"families": [', "plain\x7f"]
most = 0 if "--families=0" in sys.argv else 2 if "--families=2" in sys.argv else len(names)
families = [row["family"] for row in read["families"]]
assert families == sorted(names)[:most], families
assert [row["name"] for row in read.get("catalogue", [])] == (sorted(names) if "--tensors" in sys.argv else []), read
assert read["metadata"] == [{"key": '"families": []', "value": '"catalogue": []'}], read["metadata"]
assert text == json.dumps(read, indent=1).replace("\x7f", "\\u007f") + "\n", "the form differs"
END
done
