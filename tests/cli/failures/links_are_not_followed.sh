# A link in the place of the file that an output is written to first keeps what it leads to.
$PYTHON "$TESTS/cli/record/write_model.py" model
echo precious > victim
ln -s victim x.lpt.partial
ln -s victim page.txt.partial
loadplan -q record --checkpoint model -o x.lpt || echo "exit $?"
loadplan -q info model -o page.txt || echo "exit $?"
cat victim
rm x.lpt.partial page.txt.partial
loadplan -q record --checkpoint model -o x.lpt
loadplan -q info model -o page.txt
ls
