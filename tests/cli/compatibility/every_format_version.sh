# Traces that older versions wrote (tests/cases/traces/MAJOR) say the same today, file and text form alike.
for trace in "$TESTS"/cases/traces/*/*.lpt; do
    text=${trace%.lpt}.txt
    name=$(basename "$trace" .lpt)
    loadplan dump "$trace" | cmp - "$text"
    loadplan undump -q "$text" -o "$name.lpt"
    loadplan diff "$trace" "$name.lpt" >"$name.diff"
    loadplan info "$trace" | grep -o 'set digest.*' >was
    loadplan info "$name.lpt" | grep -o 'set digest.*' | cmp - was
    loadplan explain "$trace" >/dev/null
    echo "$name"
done
