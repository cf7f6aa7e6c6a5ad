. "$SUITE/../check/twin.bash"
# Twelve destinations of twelve families that nothing writes.
{ printf 'loadplan-trace 1000\nheader loader "test"\nlayout pp=1 dp=1 tp=1 ep=0\nname "n" U8 [4]\nscope pp=0 dp=0 tp=0\n'
  for i in a b c d e f g h i j k l; do echo "dest \"$i\" U8 [4] bytes=4 group=\"root\""; done
  printf 'END names=1 scopes=1 records=0 derives=0 refusals=0\n'; } > holes.txt
loadplan -q undump holes.txt -o holes.lpt
loadplan check holes.lpt --format=github --summary-file page.md > out && exit 9
grep -c '^::error title=dest_uncovered' out
tail -n 1 out
echo 'kept before' > page2.md
loadplan check holes.lpt --format=github --summary-file page2.md > out && exit 9
head -n 6 page2.md
grep -c '^| deny' page2.md
