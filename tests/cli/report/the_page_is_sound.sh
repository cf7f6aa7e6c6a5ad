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
# A finding says where the loader stands, once.
twin worse '/^copy .*layers.0.experts.1.w2_input_scale/d
s|^END.*|refuse "layers.0.experts.1.w2_input_scale" -> "layers.0.scales" op="max" reason="reads a value" at "experts.py":412\
END names=8 scopes=1 records=7 derives=2 refusals=1|'
loadplan report worse.lpt --against good.lpt -o worse.html
grep -o '<td class="what">.*412.*' worse.html | sed 's/<[^>]*>//g'
