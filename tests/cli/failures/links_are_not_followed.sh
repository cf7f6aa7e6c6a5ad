# A link in the place of the file that an output is written to first keeps what it leads to. A pipe there is not waited for,
# nor given what is written.
$PYTHON "$TESTS/cli/record/write_model.py" model
echo precious > victim
ln -s victim x.lpt.partial
ln -s victim page.txt.partial
loadplan -q record --checkpoint model -o x.lpt || echo "exit $?"
loadplan -q info model -o page.txt || echo "exit $?"
cat victim
rm x.lpt.partial page.txt.partial
mkfifo x.lpt.partial page.txt.partial
loadplan -qq record --checkpoint model -o x.lpt || echo "exit $?"
loadplan -q info model -o page.txt || echo "exit $?"
exec 5<>page.txt.partial
loadplan -q info model -o page.txt || echo "exit $?"
printf 'the pipe is empty\n' >&5
read -r line <&5
echo "$line"
exec 5>&-
rm -f x.lpt.partial page.txt.partial
loadplan -q record --checkpoint model -o x.lpt
loadplan -q info model -o page.txt
ls
