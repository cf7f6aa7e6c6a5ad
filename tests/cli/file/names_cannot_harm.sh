# Nothing that loadplan prints, in any format, obeys the names that it prints.
$PYTHON "$SUITE/hostile_names.py"
