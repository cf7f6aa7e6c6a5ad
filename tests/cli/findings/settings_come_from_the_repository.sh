set -e
. "$SUITE/changed.bash"
mkdir -p repository/.git repository/ci elsewhere/.git
cp ./*.lpt repository/ci; cp ./*.lpt elsewhere
cat > repository/loadplan.conf <<'CONF'
# what this repository insists on
fail-on = warn
rule.map_changed = warn
rule.copy_became_refusal = allow
suppressions = ci/accepted.txt
CONF
echo 'dest_vanished layers.*.l2_scale the engine makes it' > repository/ci/accepted.txt
(cd repository/ci; loadplan diff good.lpt pr.lpt || echo "exit $?")
# A flag is stronger than the file, and the file of BASE's folder is nobody's.
(cd repository/ci; loadplan diff good.lpt pr.lpt --fail-on=deny --rule map_changed=allow || echo "exit $?")
(cd elsewhere; loadplan diff ../repository/ci/good.lpt pr.lpt --numstat || echo "exit $?")
(cd elsewhere; loadplan diff good.lpt pr.lpt --numstat --config ../repository/loadplan.conf || echo "exit $?")
echo 'fail-one = warn' > elsewhere/loadplan.conf
(cd elsewhere; loadplan diff good.lpt pr.lpt) || echo "exit $?"
echo 'rule.map_changed = never' > elsewhere/loadplan.conf
(cd elsewhere; loadplan diff good.lpt pr.lpt) || echo "exit $?"
echo 'rule.no_such = warn' > elsewhere/loadplan.conf
(cd elsewhere; loadplan diff good.lpt pr.lpt) || echo "exit $?"
# Editors of other systems end lines with CR LF, which is fine, and may begin a file with a mark, which is told.
printf 'fail-on = never\r\nrule.map_changed = warn\r\n' > elsewhere/loadplan.conf
(cd elsewhere; loadplan diff good.lpt pr.lpt --numstat) || echo "exit $?"
printf '\xef\xbb\xbffail-on = never\n' > elsewhere/loadplan.conf
(cd elsewhere; loadplan diff good.lpt pr.lpt) || echo "exit $?"
