set -e
. "$SUITE/changed.bash"
mkdir -p repository/.git repository/sub
printf 'dest_vanished layers.* gone on purpose\n' > accepted
cp good.lpt pr.lpt repository/sub
cd repository/sub
loadplan diff good.lpt pr.lpt --format=sarif --suppressions ../../accepted > one.sarif && exit 9
loadplan diff "$PWD/good.lpt" "$PWD/pr.lpt" --format=sarif --suppressions ../../accepted > two.sarif && exit 9
loadplan check good.lpt --format=sarif > clean.sarif
"$PYTHON" "$SUITE/sarif_check.py" one.sarif two.sarif clean.sarif
