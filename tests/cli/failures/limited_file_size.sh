# A limit of file sizes (ulimit -f) ends a write like a full disk: told, with exit code 4, and nothing half-written stays.
"$PYTHON" "$SUITE/../record/write_model.py" model
loadplan record -q --checkpoint model --tp 2 -o good.lpt
limited() (
    ulimit -f 16
    loadplan "$@" || echo "exit $?"
)
limited record -q --checkpoint model --tp 2 -o x.lpt
limited record -q --checkpoint model --tp 2 -f -o good.lpt
limited replay -q good.lpt --checkpoint model --rank 0 -o out
limited report -q good.lpt -o page.html
limited dump -q good.lpt -o text
loadplan check -q good.lpt
ls -A
