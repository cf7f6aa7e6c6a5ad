# Each command of the overview explains itself, and its completion knows it.
loadplan completion bash >bash.sh
bash -n bash.sh
for command in $(loadplan help | awk '/^commands:/ {on = 1; next} /^$/ {on = 0} on {print $1}'); do
    loadplan help "$command" >"$command.txt"
    grep -q "^usage: loadplan $command" "$command.txt"
    loadplan "$command" --help | cmp - "$command.txt"
    loadplan "$command" -h >brief.txt
    head -n 3 "$command.txt" | cmp - <(head -n 3 brief.txt)
    ! grep -q 'options of every command' brief.txt
    # Prose fits a terminal; examples and choices are not broken.
    awk -v name="$command" '!/^  / && length > 100 { print name ": " $0 }' "$command.txt"
    grep -q "    $command) options=" bash.sh
done
for needed in info record check diff join explain replay verify dump undump query layout help completion; do
    test -e "$needed.txt" || echo "no command $needed"
done
