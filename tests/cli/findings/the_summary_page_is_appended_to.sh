. "$SUITE/changed.bash"
loadplan diff good.lpt pr.lpt -q --summary-file page.md >out && exit 9
tail -n 4 page.md
# More findings than a page has room for, and pages that cannot be written.
{ printf 'loadplan-trace 1000\nheader loader "test"\nlayout pp=1 dp=1 tp=1 ep=0\nname "n" U8 [4]\nscope pp=0 dp=0 tp=0\n'
  for i in $(seq 100 399); do echo "dest \"d${i}x\" U8 [4] bytes=4 group=\"root\""; done
  printf 'END names=1 scopes=1 records=0 derives=0 refusals=0\n'; } > holes.txt
loadplan -q undump holes.txt -o holes.lpt
loadplan check holes.lpt --summary-file many.md >out && exit 9
grep -c '^| deny' many.md
tail -n 2 many.md
loadplan check good.lpt --summary-file . || echo "exit $?"
[ ! -w /dev/full ] || loadplan check good.lpt --summary-file /dev/full >out || echo "exit $?"
