. "$SUITE/hostile.bash"
loadplan report evil.lpt -o one.html
loadplan report evil.lpt -o again.html
cmp one.html again.html
loadplan report evil.lpt --against good.lpt -o two.html
loadplan report good.lpt -o good.html
"$PYTHON" "$SUITE/page_check.py" one.html two.html good.html
grep -o 'layers[^ ]*script&gt;' one.html | head -n 1
grep -c 'class="row changed"' two.html
loadplan report good.lpt || echo "exit $?"
loadplan report good.lpt -o good.html || echo "exit $?"
